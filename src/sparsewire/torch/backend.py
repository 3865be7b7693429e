"""Registers the backend with torch.distributed, makes members of groups, and finds them again.

No import is needed: torch 2.14 and newer find `register` through the entry point in pyproject.toml,
and older versions find it through `sparsewire.autoload`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.torch_version import TorchVersion

from sparsewire.collectives.communicator import Communicator
from sparsewire.errors import Error
from sparsewire.options import BACKEND as NAME
from sparsewire.torch.backed_group import BackedGroup, EngineBackend, Group
from sparsewire.torch.dispatch import bring_all_tensors
from sparsewire.torch.lives import of_this_life
from sparsewire.torch.member import Member
from sparsewire.torch.reconfiguring import ReconfigurableBackend, ReconfigurableGroup

# Older versions lose Python works that C++ waits for, or compute FSDP2 on the CPU wrongly.
OLDEST = "2.9.0"
# Whether torch takes backends that are written in Python.
TAKES_BACKENDS = TorchVersion(torch.__version__) >= TorchVersion("2.14")

# Also keeps members alive that torch, under TORCH_DISTRIBUTED_DEBUG=DETAIL, would let go.
_members: WeakKeyDictionary[Any, Member | ReconfigurableBackend] = WeakKeyDictionary()


def register() -> None:
    """Make "sparsewire" a backend name for CPU and CUDA tensors. Idempotent.

    Raises ImportError if torch is older than `OLDEST`.
    """
    if TorchVersion(torch.__version__) < TorchVersion(OLDEST):
        raise ImportError(
            f"sparsewire needs torch {OLDEST} or newer, and this is {torch.__version__}: upgrade it"
        )
    # `get`, because the `in` of the table in autoload.py would call this function again.
    if dist.Backend._plugins.get(NAME.upper()) is None:
        if TAKES_BACKENDS:
            bring_all_tensors()
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(settings: Any, options: object) -> Any:
    if options is not None:
        raise TypeError(
            f'backend "{NAME}" takes no pg_options, got {type(options).__name__}: leave them out; '
            "its settings are environment variables that start with SPARSEWIRE_"
        )
    if TAKES_BACKENDS and settings.enable_reconfigure:
        return _reconfigurable(settings)
    rank, size, timeout = settings.group_rank, settings.group_size, settings.timeout
    member = join(of_this_life(settings.store, rank, size, timeout), rank, size, timeout)
    return _wrapped(settings, member) if TAKES_BACKENDS else member


def _reconfigurable(settings: Any) -> ReconfigurableGroup:
    """A group without members yet. Its ranks of a former life have other handles."""
    if not _serves_all_devices(settings.process_group):
        raise TypeError(
            f'a group whose members change has one backend: name "{NAME}" alone, without devices, '
            "or leave out enable_reconfigure"
        )
    rank, size, timeout = settings.group_rank, settings.group_size, settings.timeout
    backend = ReconfigurableBackend(settings.store, rank, size, timeout)
    group = ReconfigurableGroup(settings.store, backend)
    _members[group] = backend
    return group


def _wrapped(settings: Any, member: Any) -> dist.ProcessGroup | Member:
    """For torch 2.14 and newer: a backend to put into torch's group, or a group in its place."""
    theirs = settings.process_group
    ours = BackedGroup(settings.store, member) if _serves_all_devices(theirs) else None
    _members[ours or theirs] = member
    return ours or member


def _serves_all_devices(group: Any) -> bool:
    """Whether the group is to have only this backend, unlike "cpu:sparsewire,cuda:nccl".

    Torch names a group of several backends after the backend for the accelerator.
    """
    return group.name() == "custom" and not group._device_types


def join(store: Store, rank: int, size: int, timeout: timedelta) -> Member:
    """Make this rank's end of a group; all ranks make theirs together."""
    kind = EngineBackend if TAKES_BACKENDS else Group
    return kind(store, rank, size, timeout)


def group_of(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """A group of these ranks that torch does not register; all ranks make it together."""
    member: Any = join(store, rank, size, timeout)
    if not TAKES_BACKENDS:
        return member
    group = BackedGroup(store, member)
    _members[group] = member
    return group


def member_of(group: dist.ProcessGroup | None) -> Member | None:
    """This rank's end of a group; None if sparsewire serves no part of the group.

    None is the default group. Raises Error before `init_process_group`, and before the first
    `reconfigure` of a group that is made for it.
    """
    of_user = _or_default(group)
    held = of_user if isinstance(of_user, Member) else _members.get(of_user)
    return held.present if isinstance(held, ReconfigurableBackend) else held


def callee_of(group: dist.ProcessGroup | None) -> Any:
    """The object to call so that the engine serves; None if sparsewire serves no part of `group`.

    This is the group itself if it returns our works, so that torch's hooks see the calls.
    """
    of_user = _or_default(group)
    return of_user if isinstance(of_user, BackedGroup) else member_of(of_user)


def _or_default(group: dist.ProcessGroup | None) -> Any:
    """The group, or the default group for None; raises Error if there is no default group."""
    of_user = group if group is not None else dist.group.WORLD
    if of_user is None:
        raise Error("there is no process group: call torch.distributed.init_process_group first")
    return of_user


def stats(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """The engine's counters for a group, as `Communicator.stats` returns them.

    Counters only grow, and include DDP's broadcast of a model that it wraps. For a part of a
    program, such as its steps, take the difference of two calls.

    None is the default group. Raises ValueError for a group of another backend,
    and Error before `init_process_group`.
    """
    return _served(group).stats()


def status(group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """The state of a group's engine, silent ranks included, as `Communicator.status` returns it.

    None is the default group. Raises like `stats`.
    """
    return _served(group).status()


def device_choices(group: dist.ProcessGroup | None = None) -> dict[str, dict[str, Any]]:
    """The last choices for tensors on devices, by dtype and number of elements.

    Each choice has the `path` ("packed", "dense" or "nccl"), the shares of sampled blocks that are
    not zero (`own` on one rank on average, `union` on any rank), and `predicted_s`, seconds by
    path. Empty before the first call, and with SPARSEWIRE_CUDA=nccl. None is the default group.
    Raises like `stats`.
    """
    member = _member(group)
    return {} if member.device_path is None else member.device_path.choices()


def _served(group: dist.ProcessGroup | None) -> Communicator:
    return _member(group).communicator


def _member(group: dist.ProcessGroup | None) -> Member:
    member = member_of(group)
    if member is None:
        raise ValueError('the group has no backend "sparsewire": pass one that has')
    return member
