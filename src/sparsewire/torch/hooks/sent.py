"""One rank's data for one parameter, a code or the exact vector, as a record of a message.

A record is the number 4 * bytes + 2 * is_idle + is_exact (LEB128), and that many bytes. Exact
vectors are float32, little-endian.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sparsewire.compress import CompressError, Compressor
from sparsewire.compress.marks import Marked
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.compress.vectors import add_scaled, scaled_as

_FLOAT = np.dtype("<f4")


class Record(NamedTuple):
    """One record.

    `is_exact`: the payload is the vector as it is, finite or not. `is_idle`: the gradient of this
    step is zero, so the payload is a residual of earlier steps.
    """

    is_exact: bool
    is_idle: bool
    payload: bytes | memoryview

    def encode(self) -> bytes:
        number = 4 * len(self.payload) + 2 * self.is_idle + self.is_exact
        return b"".join((number_bytes(number), self.payload))

    @classmethod
    def read(cls, reader: Reader) -> Record:
        """The next record of a message; raises CompressError if it is malformed."""
        number = reader.number()
        return cls(bool(number & 1), bool(number & 2), reader.view(number >> 2))


class Coded(NamedTuple):
    """A code of an operator."""

    operator: Compressor
    code: Any
    is_idle: bool = False

    def record(self) -> Record:
        """The record that holds it."""
        return Record(False, self.is_idle, self.operator.pack(self.code))

    def add_to(self, total: torch.Tensor, factor: float = 1.0) -> None:
        """Add `factor` times the vector of the code to `total`, float32, on the CPU.

        Raises CompressError if the vector is not finite.
        """
        self.operator.add(self.code, total.numpy(), factor)

    def marked(self) -> Marked | None:
        """The vector of the code, float32, or None if it may be dense; raises like `add_to`."""
        marked = self.operator.marked(self.code)
        return marked and marked._replace(values=scaled_as(marked.values, _FLOAT, 1))


class Exact(NamedTuple):
    """A vector, float32, finite or not."""

    vector: NDArray[np.float32]
    is_idle: bool = False

    @classmethod
    def read(cls, record: Record, elements: int) -> Exact:
        """The vector in a record; raises CompressError unless it has `elements` elements."""
        if len(record.payload) != elements * _FLOAT.itemsize:
            raise CompressError(
                f"malformed message: {len(record.payload)} bytes for {elements} elements of float32"
            )
        return cls(np.frombuffer(record.payload, _FLOAT))

    def record(self) -> Record:
        """The record that holds it."""
        return Record(True, self.is_idle, self.vector.astype(_FLOAT, copy=False).tobytes())

    def add_to(self, total: torch.Tensor, factor: float = 1.0) -> None:
        """Add `factor` times the vector to `total`, float32, on the CPU."""
        add_scaled(self.vector, total.numpy(), factor)

    def marked(self) -> None:
        """None, because the vector is dense."""


Sent = Coded | Exact
