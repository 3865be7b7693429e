"""One call in flight in the engine: its operations and the memory they work on."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from sparsewire._core import DTYPES, OPS
from sparsewire.completion import wait
from sparsewire.errors import Error, Timeout, from_failure
from sparsewire.torch.words import as_words

if TYPE_CHECKING:
    from sparsewire import Communicator
    from sparsewire._core import Operation


class Part(NamedTuple):
    """One tensor of the call. `buffer` is what the engine works on: the tensor, or a copy of it."""

    operation: Operation
    tensor: torch.Tensor
    buffer: torch.Tensor


class EngineCall:
    """What a `Work` and its future share."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._parts: list[Part] = []
        self._settling = threading.Lock()
        self._settled = False

    def all_reduce(self, tensor: torch.Tensor, dtype: int, op: int, timeout: float) -> None:
        """Start to reduce one more tensor in place; `timeout` in seconds."""
        buffer = tensor if _is_plain(tensor) else tensor.detach().resolve_neg().contiguous()
        self._submit(tensor, buffer, buffer, dtype, op, timeout)

    def broadcast(self, tensor: torch.Tensor, is_source: bool, timeout: float) -> None:
        """Start to send one more tensor, or to receive it; `timeout` in seconds.

        A sum with zeros from everybody else leaves the bits of the source as they are, and zeros
        cost nothing to send.
        """
        memory, buffer = as_words(tensor)
        if not is_source:
            memory.zero_()
        self._submit(tensor, buffer, memory, DTYPES["int32"], OPS["sum"], timeout)

    def _submit(
        self,
        tensor: torch.Tensor,
        buffer: torch.Tensor,
        memory: torch.Tensor,
        dtype: int,
        op: int,
        timeout: float,
    ) -> None:
        address = memory.data_ptr()
        operation = self._communicator.submit(address, address, memory.numel(), dtype, op, timeout)
        self._parts.append(Part(operation, tensor, buffer))

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [part.tensor for part in self._parts]

    def done(self) -> bool:
        """Whether every operation has ended; if so, the results are in the tensors."""
        if not all(part.operation.done() for part in self._parts):
            return False
        self._settle()
        return True

    def error(self) -> Error | None:
        """Why the first failed operation failed, as far as is known by now."""
        for part in self._parts:
            failure = part.operation.failure()
            if failure is not None:
                return from_failure(failure)
        return None

    def wait(self, timeout: float = math.inf) -> None:
        """Block until the end; raises `Timeout` after `timeout` seconds, or why it failed.

        After `timeout` the operations are still in flight, and still write into the tensors.
        """
        deadline = time.monotonic() + timeout
        for part in self._parts:
            if not wait(part.operation, deadline - time.monotonic()):
                raise Timeout(
                    f"operation {part.operation.seq} has not ended after {timeout} s: "
                    "wait longer, or find out which rank has not called it"
                )
        error = self.error()
        if error is not None:
            raise error
        self._settle()

    def finish(self) -> list[torch.Tensor]:
        """Block until the end and return the tensors; raises why it failed."""
        self.wait()
        return self.tensors

    def _settle(self) -> None:
        """Copy results to where they belong, once."""
        with self._settling:
            if self._settled:
                return
            self._settled = True
            for part in self._parts:
                if part.buffer is not part.tensor and part.operation.failure() is None:
                    part.tensor.detach().copy_(part.buffer)

    def __del__(self) -> None:
        # Nobody waits any more, but the engine still reads and writes the buffers.
        for part in self._parts:
            if not part.operation.done():
                self._communicator._hold(part.operation, part.buffer)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the memory at `data_ptr` is the tensor, element by element."""
    return tensor.is_contiguous() and not tensor.is_neg()
