"""Which calls the engine takes, decided alike on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sparsewire import _core
from sparsewire.reductions import SPARSE_OPS

DTYPES = {getattr(torch, name): code for name, code in _core.DTYPES.items()}
OPS = {getattr(dist.ReduceOp, name.upper()): name for name in _core.OPS}


def operation(tensors: Sequence[torch.Tensor], op: Any) -> str | None:
    """The engine's name of the operation, or None where the inner backend serves.

    Depends only on what ranks must agree on anyway. Strides, for one, may differ between them.
    """
    name = OPS.get(op)
    if name is None or not all(_takes(tensor, name) for tensor in tensors):
        return None
    return name


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a piece of memory that the engine can read."""
    return tensor.is_cpu and tensor.layout is torch.strided


def is_sparse(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a sparse one that the engine can read."""
    return tensor.is_cpu and tensor.layout is torch.sparse_coo and tensor.dtype in DTYPES


def _takes(tensor: torch.Tensor, op: str) -> bool:
    if op == "avg" and not tensor.dtype.is_floating_point:
        return False
    if is_sparse(tensor):
        return op in SPARSE_OPS
    return has_memory(tensor) and tensor.dtype in DTYPES


def require_dense(tensors: list[torch.Tensor]) -> None:
    """Refuse strided views, of which gloo would reduce the memory between the elements."""
    for tensor in tensors:
        if has_memory(tensor) and not tensor.is_contiguous():
            raise ValueError(
                f"all_reduce of {tensor.dtype} takes contiguous tensors only: call .contiguous()"
            )


def reduce_options(
    options: Any = None, timeout: timedelta | None = None, op: Any = None
) -> dist.AllreduceOptions:
    """Join what torch's overloads of allreduce take: its options, or an operation and a timeout."""
    if isinstance(options, dist.AllreduceOptions):
        return options
    joined = dist.AllreduceOptions()
    chosen = options if options is not None else op
    if chosen is not None:
        joined.reduceOp = chosen
    if timeout is not None:
        joined.timeout = timeout
    return joined


def broadcast_options(
    options: Any = None, timeout: timedelta | None = None, root: int | None = None
) -> dist.BroadcastOptions:
    """Join what torch's overloads of broadcast take: its options, or a root and a timeout."""
    if isinstance(options, dist.BroadcastOptions):
        return options
    joined = dist.BroadcastOptions()
    chosen: int | None = root if options is None else options
    joined.rootRank = chosen or 0
    if timeout is not None:
        joined.timeout = timeout
    return joined
