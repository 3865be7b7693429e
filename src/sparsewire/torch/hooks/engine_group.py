"""The group whose engine serves a hook: the process group itself, or one made beside it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from sparsewire.torch.backed_group import BackedGroup
from sparsewire.torch.backend import callee_of, join
from sparsewire.torch.member import Member

_made: WeakKeyDictionary[dist.ProcessGroup, Member] = WeakKeyDictionary()


def engine_group(process_group: dist.ProcessGroup | None) -> Member | BackedGroup:
    """`process_group` where it is of sparsewire, else a group of the same ranks, made once.

    None is the default group. A collective call; raises `sparsewire.Error` where ranks do not come.
    """
    of_user: Any = process_group if process_group is not None else dist.group.WORLD
    callee: Member | BackedGroup | None = callee_of(of_user)
    if callee is not None:
        return callee
    if of_user not in _made:
        store = PrefixStore("sparsewire_hooks", of_user.get_group_store())
        _made[of_user] = join(store, of_user.rank(), of_user.size(), _timeout(of_user))
    return _made[of_user]


def _timeout(group: Any) -> timedelta:
    backend = group._get_backend(torch.device("cpu"))
    timeout: timedelta = backend.options._timeout
    return timeout
