"""Ends communicators if a process exits without closing them, or forks.

An exiting process closes them while Python still works. A forked child closes its copies silently:
a fork copies descriptors, but no threads, and it copies locks in any state. Connections go on
in the parent, so the child may not send, shut down, or wait for anything. A worker of a DataLoader
that kept its copies would hide the death of its parent from the peers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing.util
import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import NoReturn, TypeVar

from sparsewire.errors import Error

Close = Callable[[], None]

_open: list[Close] = []
_owned: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
_parts: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
_forgetting: list[Callable[[], None]] = []

COMMUNICATOR = "communicator"
PROCESS_GROUP = "process group"
_ADVICE = {
    COMMUNICATOR: "use it there, or have this process call sparsewire.init itself",
    PROCESS_GROUP: (
        'use it there, or start processes by the method "spawn"; a child that is a rank itself '
        "calls torch.distributed.destroy_process_group, and then init_process_group"
    ),
}

Owned = TypeVar("Owned")


def close_at_exit(close: Close) -> None:
    """Have `close` called when this process ends."""
    _open.append(close)
    _prepare_exit(os.getpid())


def closes_now(close: Close) -> bool:
    """Cancel `close_at_exit(close)`, since the caller closes now; True if it was still pending."""
    if close not in _open:
        return False
    _open.remove(close)
    return True


@cache
def _prepare_exit(process_id: int) -> None:
    """Have this process call `_close_all` at exit; children of multiprocessing run no atexit."""
    atexit.register(_close_all)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    for close in list(_open):
        with contextlib.suppress(Exception):
            close()


def disown_in_child(thing: Owned, how: str = "disown") -> Owned:
    """Have method `how` of `thing` called in each child that is forked while `thing` lives.

    The method must let go of descriptors, and take no lock that existed before the fork. Returns
    `thing`.
    """
    _owned[thing] = how
    return thing


def forget_in_child(forget: Callable[[], None]) -> None:
    """Have `forget` called in each forked child, once everything that the parent owns is disowned.

    `forget` must take no lock that existed before the fork.
    """
    _forgetting.append(forget)


def is_part(thing: object, whole: str) -> None:
    """Have errors in a child name the `whole` that users know, instead of its part `thing`."""
    _parts[thing] = whole


def _disown_all() -> None:
    _open.clear()  # The parent closes what a child inherits.
    with contextlib.ExitStack() as all_of_them:  # The stack calls the last one first.
        for forget in _forgetting:
            all_of_them.callback(forget)
        for thing, how in list(_owned.items()):
            all_of_them.callback(_disown, thing, how)
        _owned.clear()


def _disown(thing: object, how: str) -> None:
    getattr(thing, how)()
    if thing in _parts:
        for stand_in in vars(thing).values():
            if isinstance(stand_in, Inherited):
                stand_in.stands_for(_parts[thing])


os.register_at_fork(after_in_child=_disown_all)


def never_free(thing: object) -> None:
    """Keep `thing` beyond the end of Python, because freeing it would wait for threads."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Inherited:
    """Stands in a forked child for an object of the parent: every use raises Error.

    `what` is the kind of the object: COMMUNICATOR or PROCESS_GROUP.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._parent = os.getppid()

    def stands_for(self, what: str) -> None:
        self._what = what

    def refuse(self) -> NoReturn:
        raise Error(
            f"this {self._what} belongs to the parent process {self._parent}, which forked this "
            f"one: {_ADVICE[self._what]}"
        )

    def __getattr__(self, name: str) -> NoReturn:
        self.refuse()
