"""Ctrl-C at the moment when the engine has an operation, and nobody its handle."""

from __future__ import annotations

from typing import Any


class Interrupted:
    """An engine whose caller is interrupted right behind the submission of an operation."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.operation: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def submit(self, *args: Any) -> Any:
        self.operation = self._core.submit(*args)
        raise KeyboardInterrupt
