"""A dense tensor in a call of the engine: memory that the engine works on in place."""

from __future__ import annotations

from typing import NamedTuple

import torch

from sparsewire._core import OPS, Operation
from sparsewire.communicator import Communicator
from sparsewire.torch.engine_path import DTYPES
from sparsewire.torch.words import as_words


class DensePart(NamedTuple):
    """`memory` is what the engine works on: the tensor, or a copy of it."""

    operation: Operation
    tensor: torch.Tensor
    memory: torch.Tensor

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self.tensor]

    def settle(self) -> None:
        """Copy the result to where it belongs."""
        if self.memory is not self.tensor:
            self.tensor.detach().copy_(self.memory)


def all_reduce(
    communicator: Communicator, tensor: torch.Tensor, op: str, timeout: float
) -> DensePart:
    """Start to reduce a tensor in place; `timeout` in seconds."""
    memory = tensor if _is_plain(tensor) else tensor.detach().resolve_neg().contiguous()
    return DensePart(_submit(communicator, memory, op, timeout), tensor, memory)


def broadcast(
    communicator: Communicator, tensor: torch.Tensor, is_source: bool, timeout: float
) -> DensePart:
    """Start to send a tensor, or to receive it; `timeout` in seconds.

    A sum with zeros from everybody else leaves the bits of the source as they are, and zeros
    cost nothing to send.
    """
    words, memory = as_words(tensor)
    if not is_source:
        words.zero_()
    return DensePart(_submit(communicator, words, "sum", timeout), tensor, memory)


def _submit(communicator: Communicator, memory: torch.Tensor, op: str, timeout: float) -> Operation:
    address = memory.data_ptr()
    dtype = DTYPES[memory.dtype]
    return communicator.submit(address, address, memory.numel(), dtype, OPS[op], timeout)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the memory at `data_ptr` is the tensor, element by element."""
    return tensor.is_contiguous() and not tensor.is_neg()
