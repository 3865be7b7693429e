"""Has torch take sparse tensors to backends in collectives for which it knows dense ones alone.

Of sparse tensors on the CPU, torch's dispatcher knows `allreduce_` only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet

COLLECTIVES = ("allgather_", "allreduce_coalesced_", "broadcast_", "reduce_")

_library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]


def register() -> None:
    """Add what is missing, for all backends: each then decides by itself. Idempotent."""
    for name in COLLECTIVES:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"c10d::{name}", "SparseCPU"):
            operator = getattr(torch.ops.c10d, name).default
            _library.impl(name, partial(_as_dense, operator), "SparseCPU", with_keyset=True)


def _as_dense(operator: Any, _keys: DispatchKeySet, *arguments: Any) -> Any:
    """What the operator does for dense tensors: it only finds the backend and calls it."""
    return operator.redispatch(DispatchKeySet(DispatchKey.CPU), *arguments)
