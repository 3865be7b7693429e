"""Closes communicators, and groups of them, that a process forgets, while Python still works."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
from functools import cache
from typing import Protocol


class _Closable(Protocol):
    def close(self) -> None: ...


_open: list[_Closable] = []


def register(communicator: _Closable) -> None:
    """Have `communicator` closed when this process ends."""
    _open.append(communicator)
    _close_at_exit(os.getpid())


def unregister(communicator: _Closable) -> bool:
    """Whether `communicator` was still to be closed; it is not any more."""
    if communicator not in _open:
        return False
    _open.remove(communicator)
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
    for communicator in list(_open):
        with contextlib.suppress(Exception):
            communicator.close()
