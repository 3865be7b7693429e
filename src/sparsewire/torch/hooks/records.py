"""What a message holds for one parameter: an operator's code, or the vector as it is.

A record is the number 2 * bytes + is_exact (LEB128), and that many bytes. Exact ones are float32,
little-endian.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from sparsewire.compress.errors import CompressError
from sparsewire.compress.message import Reader, number_bytes

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


def exact_vector(record: Record, size: int) -> torch.Tensor:
    """The vector of an exact record; raises CompressError unless it has `size` elements."""
    if len(record.payload) != size * _FLOAT.itemsize:
        raise CompressError(
            f"malformed message: {len(record.payload)} bytes for {size} elements of float32"
        )
    return torch.from_numpy(np.frombuffer(record.payload, _FLOAT).astype(np.float32))
