"""A process group whose members change while it lives: torch's `enable_reconfigure`, from 2.14 on.

Torch knows one backend all the time. It passes calls on to this rank's member of the present
generation, which `reconfigure` replaces by a member of the next.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.errors import Error, InputError, MismatchError
from sparsewire.meeting.places.place import lost
from sparsewire.options import BACKEND as NAME
from sparsewire.torch.backed_group import (
    DIRECT,
    PASSED_ON,
    BackedGroup,
    Described,
    EngineBackend,
)
from sparsewire.torch.calls.forwarding import RENAMED, untraced
from sparsewire.torch.calls.work import Hook, Together

_c10d: Any = c10d
_NO_ERROR = _c10d.ErrorType.SUCCESS if hasattr(_c10d, "ErrorType") else None

_HANDLE = re.compile(rf"{NAME}:[0-9a-f]{{16}}")
MAX_MEMBERS = 4096
"""Handles that one call may name."""

# What torch asks of a backend beside its collectives, and the present member answers.
_OF_THE_MEMBER = (
    "monitored_barrier",
    "start_coalescing",
    "end_coalescing",
    "_set_sequence_number_for_group",
    "_get_sequence_number_for_group",
)


class ReconfigurableBackend(Described):
    """One rank's end of a group that has no members before the first `reconfigure`.

    Until then it has the rank and the size that it is made with, and collectives raise Error.
    """

    supports_reconfigure = property(lambda self: True)

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store = store
        self._first_rank, self._first_size = rank, size
        self._hooks: dict[int, Hook] = {}
        self._member: EngineBackend | None = None
        self._handle = _new_handle()
        self.describe(timeout)

    def rank(self) -> int:
        return self._first_rank if self._member is None else self._member.rank()

    def size(self) -> int:
        return self._first_size if self._member is None else self._member.size()

    @property
    def present(self) -> EngineBackend:
        """This rank's member of the present generation; Error before the first `reconfigure`."""
        if self._member is None:
            raise Error(
                "this process group has no members yet: exchange the handles of "
                "torch.distributed._get_reconfigure_handle, and call torch.distributed._reconfigure"
            )
        return self._member

    @property
    def has_aggregators(self) -> bool:
        return self.present.has_aggregators

    def get_reconfigure_handle(self) -> str:
        """This rank's name in the next `reconfigure`. Each that succeeds gives the rank a new one.

        A rank that was left out, or whose `reconfigure` failed, keeps its handle.
        """
        return self._handle

    @untraced
    def reconfigure(self, opts: Any) -> Together:
        """Make these ranks the group's members; blocks until all of them have come.

        `opts.handles` names the members: in the order of their ranks, or a set, which is sorted.
        `opts.uuid` must be new to the store. `opts.timeout` limits this call; `opts.hints` are
        for other backends. The former members are left once the new ones have met. If that fails,
        this rank stays in the former group, and may try again with another uuid.

        Raises InputError for unusable handles and a uuid that was used, MismatchError if ranks
        name other members, Timeout if one does not come, and Error if the store is lost.
        """
        handles = _ordered(opts.handles, self._handle)
        limit = self._timeout if opts.timeout is None else opts.timeout
        place = _claimed(self._store, opts.uuid, handles, self._handle)
        member = _met(place, handles.index(self._handle), len(handles), limit)
        self._replace(member)
        return Together([], [], member._callbacks)

    def _replace(self, member: EngineBackend) -> None:
        member.set_timeout(self._timeout)
        member._health.hooks = self._hooks
        former, self._member = self._member, member
        self._handle = _new_handle()
        if former is not None:
            former.shutdown()

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout
        if self._member is not None:
            self._member.set_timeout(timeout)

    def get_error(self) -> Any:
        """As `EngineBackend.get_error`, of the present members; SUCCESS before there are any."""
        return _NO_ERROR if self._member is None else self._member.get_error()

    def registerAbortHook(self, identifier: int, hook: Hook) -> None:
        self._hooks[identifier] = hook

    def unregisterAbortHook(self, identifier: int) -> None:
        self._hooks.pop(identifier, None)

    def abort(self) -> None:
        """Fail all calls in flight, here and on the other members. `reconfigure` goes on."""
        if self._member is not None:
            self._member.abort()

    def shutdown(self) -> None:
        if self._member is not None:
            self._member.shutdown()


class ReconfigurableGroup(BackedGroup):
    """The process group in front of a ReconfigurableBackend: its rank and size may change.

    Torch asks for both by an old name from C++, and by a new one from Python.
    """

    _member: ReconfigurableBackend

    def rank(self) -> int:
        return self._member.rank()

    def size(self) -> int:
        return self._member.size()

    getRank = rank
    getSize = size


def _new_handle() -> str:
    return f"{NAME}:{secrets.token_hex(8)}"


def _ordered(handles: Collection[str], own: str) -> list[str]:
    """The members in the order of their ranks; raises InputError if they cannot be members."""
    members = sorted(handles) if isinstance(handles, set) else list(handles)
    if len(members) > MAX_MEMBERS or not all(map(_HANDLE.fullmatch, members)):
        raise InputError(
            f"not handles of this backend, or over {MAX_MEMBERS}: pass what each member's "
            "torch.distributed._get_reconfigure_handle returns"
        )
    if len(set(members)) < len(members):
        raise InputError("a member is named twice: pass one handle for each")
    if own not in members:
        raise InputError(
            f"the handle of this rank, {own}, is not among the members: pass the handles that "
            "_get_reconfigure_handle returns now, and do not call on ranks that are left out"
        )
    return members


def _claimed(store: Any, uuid: int, handles: list[str], own: str) -> Store:
    """The part of the store for these members, who alone may use this uuid.

    Whoever comes first claims it for all. Handles change with every success, so that nobody takes
    an earlier claim for this one.
    """
    place: Any = PrefixStore(f"reconfigure/{uuid}", store)
    named = json.dumps(handles)
    try:
        is_first = place.add(own, 1) == 1
        claim = place.compare_set("members", "", named).decode()
    except RuntimeError as error:
        raise lost(error) from error
    if not is_first:
        raise InputError(f"uuid {uuid} was already used here: pass a new one in every call")
    if claim != named:
        raise MismatchError(
            f"uuid {uuid} was already used for other members: pass a new uuid in every call, and "
            "the same handles in the same order on all ranks"
        )
    return PrefixStore("members", place)


def _met(place: Store, rank: int, size: int, limit: timedelta) -> EngineBackend:
    """This rank's new member, once all others have theirs; raises Timeout otherwise."""
    member = EngineBackend(place, rank, size, limit)
    try:
        member.communicator.barrier(limit.total_seconds() or None)
    except BaseException:
        member.shutdown()
        raise
    return member


def _of_the_member(name: str) -> Any:
    def method(self: ReconfigurableBackend, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.present, name)(*args, **kwargs)

    method.__name__ = name
    return untraced(method)


for _name in {*PASSED_ON, *DIRECT, *RENAMED, *RENAMED.values(), *_OF_THE_MEMBER}:
    setattr(ReconfigurableBackend, _name, _of_the_member(_name))
