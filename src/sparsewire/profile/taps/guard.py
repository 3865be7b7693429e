"""Keeps what fails in a profile from the training around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Guard:
    """A guard: a failure inside is reported, and goes no further; Ctrl-C does."""

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self._fail(error)
        return True
