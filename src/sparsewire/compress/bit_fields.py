"""Unsigned integers of a few bits each, one after the other, the highest bit first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.errors import CompressError


def pack_fields(numbers: NDArray[Any], width: int) -> bytes:
    """Numbers below 2^width, shape (count,), as bits, filled up with zeros to whole bytes."""
    shifts = np.arange(width - 1, -1, -1, dtype=np.int64)
    bits = (numbers.astype(np.int64)[:, None] >> shifts) & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def unpack_fields(payload: bytes, count: int, width: int) -> NDArray[np.int64]:
    """The numbers again, shape (count,); raises CompressError for another number of bytes."""
    if len(payload) != field_bytes(count, width):
        raise CompressError(
            f"malformed message: {field_bytes(count, width)} bytes expected, found {len(payload)}"
        )
    bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=count * width)
    numbers = np.zeros(count, np.int64)
    for column in bits.reshape(count, width).T:
        numbers = numbers << 1 | column
    return numbers


def field_bytes(count: int, width: int) -> int:
    """Bytes of `count` numbers."""
    return (count * width + 7) // 8
