"""The calls that the engine takes, decided alike on every rank, and how it serves them.

Each call returns a handle, and its result is in the tensors: the engine works in place on the
memory of a dense tensor; a sparse_coo tensor gets new indices and values. `timeout` is in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sparsewire import _core
from sparsewire.collectives.communicator import Communicator
from sparsewire.collectives.views import SPARSE_OPS
from sparsewire.device.accelerator import is_on_device
from sparsewire.device.plain import plain
from sparsewire.device.words import as_words
from sparsewire.work import Work

DTYPES = {getattr(torch, name): code for name, code in _core.DTYPES.items()}
OPS = {getattr(dist.ReduceOp, name.upper()): name for name in _core.OPS}


def operation(tensors: Sequence[torch.Tensor], op: Any) -> str | None:
    """The engine's name of the operation, or None if the inner backend serves.

    Depends only on properties that must be equal on all ranks; strides, for example, may differ.
    For tensors on a device, it says what the engine could serve.
    """
    name = OPS.get(op)
    if name is None or not all(_takes(tensor, name) for tensor in tensors):
        return None
    return name


def can_read(tensor: torch.Tensor) -> bool:
    """Whether the engine can read the tensor's elements, or, if it is dense, at least its bits."""
    return has_memory(tensor) or is_sparse(tensor)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a piece of memory that the engine can read, or stage."""
    return _is_near(tensor) and tensor.layout is torch.strided


def is_sparse(tensor: torch.Tensor) -> bool:
    """Whether the tensor is sparse, and the engine can read or stage it."""
    return _is_near(tensor) and tensor.layout is torch.sparse_coo and tensor.dtype in DTYPES


def _is_near(tensor: torch.Tensor) -> bool:
    """Whether the engine reaches the tensor's memory, directly or through a copy on the host."""
    return tensor.is_cpu or is_on_device(tensor)


def _takes(tensor: torch.Tensor, op: str) -> bool:
    if op == "avg" and not tensor.dtype.is_floating_point:
        return False
    if is_sparse(tensor):
        return op in SPARSE_OPS
    return has_memory(tensor) and tensor.dtype in DTYPES


def all_reduce(tensor: torch.Tensor, op: str, communicator: Communicator, timeout: float) -> Work:
    """Start to reduce a tensor over all ranks."""
    if is_sparse(tensor):
        work = communicator.all_reduce(tensor, op, None, True, timeout, result="sparse")
        return _into([tensor], work)
    memory = plain(tensor)
    return _reduce(tensor, memory, memory, op, communicator, timeout)


def broadcast(tensor: torch.Tensor, root: int, communicator: Communicator, timeout: float) -> Work:
    """Start to give each rank the tensor of rank `root`.

    A dense tensor is added to zeros of all other ranks: that keeps the bits of the root's tensor,
    and zeros cost nothing to send.
    """
    if is_sparse(tensor):
        return _into([tensor], communicator.broadcast(tensor, root, True, timeout))
    words, memory = as_words(tensor)
    if root != communicator.rank:
        words.zero_()
    return _reduce(tensor, memory, words, "sum", communicator, timeout)


def reduce(
    tensor: torch.Tensor, op: str, root: int, communicator: Communicator, timeout: float
) -> Work:
    """Start to reduce a sparse tensor at rank `root`; other ranks keep their tensors unchanged."""
    return _into([tensor], communicator.reduce(tensor, op, root, True, timeout))


def all_gather(
    tensor: torch.Tensor,
    outputs: Sequence[torch.Tensor],
    communicator: Communicator,
    timeout: float,
) -> Work:
    """Start to put the sparse tensors of all ranks into `outputs`, one for each rank."""
    require_outputs(tensor, outputs, communicator.world_size)
    return _into(outputs, communicator.all_gather(tensor, True, timeout))


def require_outputs(tensor: torch.Tensor, outputs: Sequence[torch.Tensor], world_size: int) -> None:
    """Raise ValueError if outputs of an all_gather have another shape, dtype, layout or number."""
    expected = [(tensor.shape, tensor.dtype, tensor.layout)] * world_size
    if [(output.shape, output.dtype, output.layout) for output in outputs] != expected:
        raise ValueError(
            f"all_gather of a sparse tensor needs {world_size} sparse outputs of "
            f"shape {tuple(tensor.shape)} and {tensor.dtype}, one for each rank"
        )


def _into(tensors: Sequence[torch.Tensor], work: Work) -> Work:
    """Have `work` put its results into sparse tensors, coalesced."""

    def take_over(results: torch.Tensor | list[torch.Tensor] | None) -> None:
        if results is None:
            return  # A reduce gives nothing to ranks other than its root.
        listed = results if isinstance(results, list) else [results]
        for tensor, result in zip(tensors, listed, strict=True):
            # Takes over the result's memory; `copy_` would copy it.
            tensor.data = result

    return work.deliver_to(take_over)


def _reduce(
    tensor: torch.Tensor,
    memory: torch.Tensor,
    words: torch.Tensor,
    op: str,
    communicator: Communicator,
    timeout: float,
) -> Work:
    """Reduce `words`: elements or bits of `memory`, which is the tensor, or a copy of it."""
    address, count, dtype = words.data_ptr(), words.numel(), DTYPES[words.dtype]

    def settle() -> None:
        if memory is not tensor:
            tensor.detach().copy_(memory)

    return communicator.engine.submit(
        address, address, count, dtype, _core.OPS[op], timeout, result=settle, memory=memory
    )
