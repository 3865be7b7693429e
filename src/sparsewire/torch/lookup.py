"""Finds what sparsewire has in a process group of torch."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from sparsewire.communicator import Communicator
from sparsewire.errors import Error
from sparsewire.torch.backed_group import BackedGroup
from sparsewire.torch.member import Member

# Also keeps alive what torch, under TORCH_DISTRIBUTED_DEBUG=DETAIL, would let go.
_members: WeakKeyDictionary[Any, Member] = WeakKeyDictionary()


def remember(group: dist.ProcessGroup, member: Member) -> None:
    """Have `member_of` find `member` for as long as the group lives."""
    _members[group] = member


def member_of(group: dist.ProcessGroup | None) -> Member | None:
    """This rank's end of a group, None where sparsewire serves no part of it.

    Without a group, of the default group; raises Error before `init_process_group`.
    """
    of_user = _or_default(group)
    return of_user if isinstance(of_user, Member) else _members.get(of_user)


def callee_of(group: dist.ProcessGroup | None) -> Any:
    """What to call for the engine to serve, None where sparsewire serves no part of the group.

    That is the group itself where it gives our works, so that torch's hooks see the calls.
    """
    of_user = _or_default(group)
    return of_user if isinstance(of_user, BackedGroup) else member_of(of_user)


def _or_default(group: dist.ProcessGroup | None) -> Any:
    """The group, or the default one for None; raises Error where there is no such."""
    of_user = group if group is not None else dist.group.WORLD
    if of_user is None:
        raise Error("there is no process group: call torch.distributed.init_process_group first")
    return of_user


def stats(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """The engine's counters for a group, as `Communicator.stats` gives them.

    Without a group, for the default group. Raises ValueError for a group of another backend,
    and Error before `init_process_group`.
    """
    return _served(group).stats()


def status(group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """What the engine is at for a group, and which ranks are silent, as `Communicator.status` says.

    Without a group, for the default group. Raises ValueError for a group of another backend,
    and Error before `init_process_group`.
    """
    return _served(group).status()


def _served(group: dist.ProcessGroup | None) -> Communicator:
    member = member_of(group)
    if member is None:
        raise ValueError('the group has no backend "sparsewire": pass one that has')
    return member.communicator
