"""What one rank sends of one parameter: a code, or the vector as it is. It can be added to sums.

`is_idle` is that of its record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sparsewire.compress import CompressError, Compressor
from sparsewire.compress.marks import Marked
from sparsewire.compress.vectors import add_scaled, scaled_as
from sparsewire.torch.hooks.records import Record

_FLOAT = np.dtype("<f4")


class Coded(NamedTuple):
    """A code of an operator."""

    operator: Compressor
    code: Any
    is_idle: bool = False

    def record(self) -> Record:
        """The record that says it."""
        return Record(False, self.is_idle, self.operator.pack(self.code))

    def add_to(self, total: torch.Tensor, factor: float = 1.0) -> None:
        """Add `factor` times what the code stands for to `total`, float32, on the CPU.

        Raises CompressError if that is not finite.
        """
        self.operator.add(self.code, total.numpy(), factor)

    def marked(self) -> Marked | None:
        """What the code stands for, float32, where that is few elements; errors of `add_to`."""
        marked = self.operator.marked(self.code)
        return marked and Marked(marked.marks, scaled_as(marked.values, _FLOAT, 1))


class Exact(NamedTuple):
    """A vector, float32, finite or not."""

    vector: NDArray[np.float32]
    is_idle: bool = False

    @classmethod
    def read(cls, record: Record, elements: int) -> Exact:
        """What a record holds; raises CompressError unless that is so many elements."""
        if len(record.payload) != elements * _FLOAT.itemsize:
            raise CompressError(
                f"malformed message: {len(record.payload)} bytes for {elements} elements of float32"
            )
        return cls(np.frombuffer(record.payload, _FLOAT))

    def record(self) -> Record:
        """The record that says it."""
        return Record(True, self.is_idle, self.vector.astype(_FLOAT, copy=False).tobytes())

    def add_to(self, total: torch.Tensor, factor: float = 1.0) -> None:
        """Add `factor` times the vector to `total`, float32, on the CPU."""
        add_scaled(self.vector, total.numpy(), factor)

    def marked(self) -> None:
        """It is dense."""


Sent = Coded | Exact
