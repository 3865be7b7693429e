"""Membership of the ranks of a process group, which meet in the group's own store."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from sparsewire.collectives.communicator import Communicator
from sparsewire.errors import Error
from sparsewire.meeting.connect import init
from sparsewire.torch.outer.membership.by_store import StoreMembership
from sparsewire.torch.outer.membership.membership import Membership

_made: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def ranks_of(process_group: dist.ProcessGroup | None) -> Membership:
    """Membership of the ranks of a group; None is the default group."""
    group: Any = process_group if process_group is not None else dist.group.WORLD
    if group is None:
        raise Error(
            "there is no process group: call torch.distributed.init_process_group first, or pass "
            "membership="
        )
    names = [str(rank) for rank in range(group.size())]
    return StoreMembership(_store_of(group), str(group.rank()), len(names), first=names)


def among_workers(group: Any, timeout: float) -> Communicator:
    """A communicator among the workers of this replica."""
    return init(_store_of(group), rank=group.rank(), world_size=group.size(), timeout=timeout)


def _store_of(group: Any) -> PrefixStore:
    """A part of a group's store that was not used before; all ranks call this alike.

    It has a connection of its own, since the thread of rounds must not wait for other users.
    """
    number = _made.get(group, 0)
    _made[group] = number + 1
    return PrefixStore(f"sparsewire_outer/{number}", group.get_group_store().clone())
