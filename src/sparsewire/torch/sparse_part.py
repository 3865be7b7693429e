"""A sparse_coo tensor in a call of the engine, which gets new indices and values in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from sparsewire._core import Operation
from sparsewire.communicator import Communicator
from sparsewire.torch.engine_call import EngineCall
from sparsewire.work import Work


class SparsePart(NamedTuple):
    """`memory` is the communicator's own handle, which keeps what the engine reads."""

    tensors: list[torch.Tensor]
    memory: Work

    @property
    def operation(self) -> Operation:
        return self.memory._operation

    def settle(self) -> None:
        """Have the tensors hold the results, coalesced."""
        results = self.memory.wait()
        if results is None:
            return  # A reduce gives nothing to ranks other than its root.
        for tensor, result in zip(self.tensors, _listed(results), strict=True):
            # Takes over the result's memory, where `copy_` would copy it.
            tensor.data = result


def all_reduce(call: EngineCall, tensor: torch.Tensor, op: str, timeout: float) -> None:
    """Start to reduce a tensor in place, as a part of the call; `timeout` in seconds."""
    work = call.communicator.all_reduce(tensor, op, async_op=True, timeout=timeout, result="sparse")
    call.add(SparsePart([tensor], work))


def reduce(
    communicator: Communicator, tensor: torch.Tensor, op: str, root: int, timeout: float
) -> SparsePart:
    """Start to reduce a tensor, in place on rank `root` and unchanged on the others."""
    return SparsePart([tensor], communicator.reduce(tensor, op, root, True, timeout))


def broadcast(
    communicator: Communicator, tensor: torch.Tensor, root: int, timeout: float
) -> SparsePart:
    """Start to give each rank the tensor of rank `root`, in place."""
    return SparsePart([tensor], communicator.broadcast(tensor, root, True, timeout))


def all_gather(
    communicator: Communicator,
    outputs: Sequence[torch.Tensor],
    tensor: torch.Tensor,
    timeout: float,
) -> SparsePart:
    """Start to put the tensors of all ranks into `outputs`, one for each rank.

    Raises ValueError for outputs of another shape, dtype or number.
    """
    expected = [(tensor.shape, tensor.dtype, tensor.layout)] * communicator.world_size
    if [(output.shape, output.dtype, output.layout) for output in outputs] != expected:
        raise ValueError(
            f"all_gather of a sparse tensor needs {communicator.world_size} sparse outputs of "
            f"shape {tuple(tensor.shape)} and {tensor.dtype}, one for each rank"
        )
    return SparsePart(list(outputs), communicator.all_gather(tensor, True, timeout))


def _listed(results: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    return results if isinstance(results, list) else [results]
