"""A dense tensor in a call of the engine: memory that the engine works on in place."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from sparsewire._core import OPS, Operation
from sparsewire.torch.engine_call import EngineCall
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


def all_reduce(call: EngineCall, tensor: torch.Tensor, op: str, timeout: float) -> None:
    """Start to reduce a tensor in place, as a part of the call; `timeout` in seconds."""
    memory = tensor if _is_plain(tensor) else tensor.detach().resolve_neg().contiguous()
    _start(call, tensor, memory, memory, op, timeout)


def broadcast(call: EngineCall, tensor: torch.Tensor, is_source: bool, timeout: float) -> None:
    """Start to send a tensor, or to receive it, as a part of the call; `timeout` in seconds.

    A sum with zeros from everybody else leaves the bits of the source as they are, and zeros
    cost nothing to send.
    """
    words, memory = as_words(tensor)
    if not is_source:
        words.zero_()
    _start(call, tensor, memory, words, "sum", timeout)


def _start(
    call: EngineCall,
    tensor: torch.Tensor,
    memory: torch.Tensor,
    words: torch.Tensor,
    op: str,
    timeout: float,
) -> None:
    """Reduce `words`, which are the elements of `memory` or its bits."""
    address, count, dtype = words.data_ptr(), words.numel(), DTYPES[words.dtype]
    call.start(
        partial(call.communicator.submit, address, address, count, dtype, OPS[op], timeout),
        lambda operation: DensePart(operation, tensor, memory),
        memory,
    )


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the memory at `data_ptr` is the tensor, element by element."""
    return tensor.is_contiguous() and not tensor.is_neg()
