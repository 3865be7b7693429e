"""Which calls the engine takes, decided alike on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from sparsewire import _core
from sparsewire.arguments import SPARSE_OPS

DTYPES = {getattr(torch, name): code for name, code in _core.DTYPES.items()}
Options = TypeVar("Options")
OPS = {getattr(dist.ReduceOp, name.upper()): name for name in _core.OPS}


def operation(tensors: Sequence[torch.Tensor], op: Any) -> str | None:
    """The engine's name of the operation, or None where the inner backend serves.

    Depends only on what ranks must agree on anyway. Strides, for one, may differ between them.
    """
    name = OPS.get(op)
    if name is None or not all(_takes(tensor, name) for tensor in tensors):
        return None
    return name


def can_read(tensor: torch.Tensor) -> bool:
    """Whether the engine can read the tensor's elements, or for a dense one at least its bits."""
    return has_memory(tensor) or is_sparse(tensor)


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


def joined(
    kind: type[Options], name: str, options: Any, timeout: timedelta | None, value: Any
) -> Options:
    """Join what torch's overloads of a collective take: its options, or one of them and a timeout.

    `name` is that option's; it comes in the place of `options`, or as `value`.
    """
    if isinstance(options, kind):
        return options
    made: Any = kind()
    chosen = value if options is None else options
    if chosen is not None:
        setattr(made, name, chosen)
    if timeout is not None:
        made.timeout = timeout
    return made  # type: ignore[no-any-return]
