"""The inner backends that serve what the engine does not: gloo for CPU tensors, NCCL for CUDA."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.meeting.interface import local_address

# Torch's own stubs leave out most methods of its backends.
Backend: TypeAlias = Any


def gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """Connect a gloo backend, which listens on the address that the engine listens on."""
    backend: Any = dist.ProcessGroupGloo
    options = backend._Options()
    options._timeout = timeout
    # Gloo's own choice is what the host's name means, which often is loopback.
    options._devices = [backend.create_device(hostname=local_address(os.environ))]
    return backend(PrefixStore("gloo", store), rank, size, options)


def nccl(store: Store, rank: int, size: int, timeout: timedelta) -> Backend | None:
    """An NCCL backend, which connects at its first call; None on a machine without CUDA."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return None
    options: Any = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, options)
