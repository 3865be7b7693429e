"""Messages of different lengths, given to all ranks: first their lengths, then the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

from sparsewire.torch.hooks.transport import Gathering, Transport

T = TypeVar("T")

_LENGTH = np.dtype("<i8")


class Messages:
    """The messages of all ranks in rank order, on their way."""

    def __init__(self, gathering: Gathering, lengths: list[int]) -> None:
        self._gathering = gathering
        self._lengths = lengths

    def wait(self) -> list[bytes]:
        """Block until all are here, and return them; raises why they are not."""
        return self._split(self._gathering.wait())

    def then(self, callback: Callable[[list[bytes]], T]) -> torch.futures.Future[T]:
        """A future of `callback(messages)`."""
        return self._gathering.then(lambda rows: callback(self._split(rows)))

    def _split(self, rows: torch.Tensor) -> list[bytes]:
        return [
            row[:length].tobytes() for row, length in zip(rows.numpy(), self._lengths, strict=True)
        ]


def gather(transport: Transport, message: bytes) -> Messages:
    """Give everybody this rank's message; collective. Blocks until all lengths are known."""
    # Nothing else may be sent from a callback: groups differ in the order in which these run.
    length = np.array([len(message)], _LENGTH).view(np.uint8)
    rows = transport.gather(torch.from_numpy(length)).wait()
    lengths = rows.contiguous().numpy().view(_LENGTH)[:, 0].tolist()
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    return Messages(transport.gather(torch.from_numpy(padded)), lengths)
