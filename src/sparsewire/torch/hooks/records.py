"""What a message holds for one parameter: an operator's code, or the vector as it is.

A record is the number 2 * bytes + is_exact (LEB128), and that many bytes. Exact ones are float32,
little-endian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sparsewire.compress import CompressError, Compressor
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.compress.vectors import add_scaled

_FLOAT = np.dtype("<f4")


class Record(NamedTuple):
    """One record. `is_exact`: the payload is the vector as it is, finite or not."""

    is_exact: bool
    payload: bytes

    def encode(self) -> bytes:
        return number_bytes(2 * len(self.payload) + self.is_exact) + self.payload

    @classmethod
    def read(cls, reader: Reader) -> Record:
        """The next record of a message; raises CompressError if it is malformed."""
        number = reader.number()
        return cls(bool(number % 2), reader.take(number // 2))


def exact(vector: torch.Tensor) -> Record:
    """A float32 vector on the CPU as it is."""
    return Record(True, vector.numpy().astype(_FLOAT, copy=False).tobytes())


Sent = Callable[[torch.Tensor, float], None]
"""Adds a multiple of what one rank sent to a float32 vector on the CPU.

Raises CompressError if a code stands for something that is not finite.
"""


def exact_sent(record: Record, elements: int) -> Sent:
    """What an exact record holds; raises CompressError unless it has so many elements."""
    vector = _exact_vector(record, elements)
    return lambda total, factor: add_scaled(vector, total.numpy(), factor)


def coded_sent(record: Record, operator: Compressor) -> Sent:
    """What any other record stands for; raises CompressError if it is malformed."""
    code = operator.read(record.payload)
    return lambda total, factor: operator.add(code, total.numpy(), factor)


def _exact_vector(record: Record, size: int) -> NDArray[np.float32]:
    if len(record.payload) != size * _FLOAT.itemsize:
        raise CompressError(
            f"malformed message: {len(record.payload)} bytes for {size} elements of float32"
        )
    return np.frombuffer(record.payload, _FLOAT)
