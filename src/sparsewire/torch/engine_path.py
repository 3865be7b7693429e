"""Which calls the engine takes, decided alike on every rank."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sparsewire import _core

DTYPES = {getattr(torch, name): code for name, code in _core.DTYPES.items()}
OPS = {getattr(dist.ReduceOp, name.upper()): code for name, code in _core.OPS.items()}


def codes(tensors: list[torch.Tensor], op: Any) -> list[tuple[int, int]] | None:
    """Codes of dtype and operation for each tensor, or None where the inner backend serves.

    Depends only on what ranks must agree on anyway. Strides, for one, may differ between them.
    """
    code = OPS.get(op)
    if code is None or not all(_takes(tensor, op) for tensor in tensors):
        return None
    return [(DTYPES[tensor.dtype], code) for tensor in tensors]


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the engine can read the tensor at all: on the CPU, and not sparse."""
    return tensor.is_cpu and tensor.layout is torch.strided


def _takes(tensor: torch.Tensor, op: Any) -> bool:
    return (
        has_memory(tensor)
        and tensor.dtype in DTYPES
        and (op != dist.ReduceOp.AVG or tensor.dtype.is_floating_point)
    )


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
