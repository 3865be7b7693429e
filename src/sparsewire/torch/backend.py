"""Registers the backend with torch.distributed and makes what torch asks it for.

Torch 2.14 and newer find `register` through the entry point in pyproject.toml: no import is needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.torch_version import TorchVersion

from sparsewire.torch import sparse_dispatch
from sparsewire.torch.backed_group import BackedGroup
from sparsewire.torch.engine_backend import EngineBackend
from sparsewire.torch.group import Group
from sparsewire.torch.lookup import remember
from sparsewire.torch.member import NAME, Member

# Older ones lose works of Python that C++ waits for, or compute FSDP2 on the CPU wrongly.
OLDEST = "2.9.0"
# Whether torch takes backends that are written in Python.
TAKES_BACKENDS = TorchVersion(torch.__version__) >= TorchVersion("2.14")


def register() -> None:
    """Make "sparsewire" a backend name for CPU and CUDA tensors. Idempotent.

    Raises ImportError where torch is older than `OLDEST`.
    """
    if TorchVersion(torch.__version__) < TorchVersion(OLDEST):
        raise ImportError(
            f"sparsewire needs torch {OLDEST} or newer, and this is {torch.__version__}: upgrade it"
        )
    if NAME.upper() not in dist.Backend._plugins:
        if TAKES_BACKENDS:
            sparse_dispatch.register()
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(settings: Any, options: object) -> Any:
    if options is not None:
        raise TypeError(
            f'backend "{NAME}" takes no pg_options, got {type(options).__name__}: leave them out; '
            "its settings are environment variables that start with SPARSEWIRE_"
        )
    if TAKES_BACKENDS and settings.enable_reconfigure:
        raise TypeError(
            f'backend "{NAME}" cannot change its members: leave out enable_reconfigure, and make '
            "a new group instead"
        )
    member = join(settings.store, settings.group_rank, settings.group_size, settings.timeout)
    return _wrapped(settings, member) if TAKES_BACKENDS else member


def _wrapped(settings: Any, member: Any) -> dist.ProcessGroup | Member:
    """What torch 2.14 and newer take: a backend to put into their group, or a group instead."""
    theirs = settings.process_group
    ours = BackedGroup(settings.store, member) if _serves_all_devices(theirs) else None
    remember(ours or theirs, member)
    return ours or member


def join(store: Store, rank: int, size: int, timeout: timedelta) -> Member:
    """Make this rank's end of a group; all ranks make theirs together."""
    kind = EngineBackend if TAKES_BACKENDS else Group
    return kind(store, rank, size, timeout)


def _serves_all_devices(group: Any) -> bool:
    """Whether the group is to have no other backend, as "cpu:sparsewire,cuda:nccl" has.

    Torch names a group of several after the one for the accelerator.
    """
    return group.name() == "custom" and not group._device_types
