"""Closes communicators, and groups of them, that a process forgets, while Python still works."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
from collections.abc import Callable
from functools import cache

Close = Callable[[], None]

_open: list[Close] = []


def register(close: Close) -> None:
    """Have `close` called when this process ends."""
    _open.append(close)
    _close_at_exit(os.getpid())


def unregister(close: Close) -> bool:
    """Whether `close` was still to be called; it is not any more."""
    if close not in _open:
        return False
    _open.remove(close)
    return True


@cache
def _close_at_exit(process_id: int) -> None:
    """Have this process close what it forgot to; children of multiprocessing run no atexit."""
    atexit.register(_close_all)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _close_all, exitpriority=100)


# What a child inherits is its parent's to close.
os.register_at_fork(after_in_child=_open.clear)


def _close_all() -> None:
    for close in list(_open):
        with contextlib.suppress(Exception):
            close()
