"""The bytes of a message: little-endian numbers and values, read with every length checked; and
messages as rows of sparse vectors, so that collectives carry those of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import first_not_finite
from sparsewire.errors import CompressError
from sparsewire.sparse_vector import SparseVector

_LONGEST_NUMBER = 9


def number_bytes(number: int) -> bytes:
    """A number of at most 63 bits as LEB128: seven bits a byte, the lowest first."""
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def value_bytes(values: NDArray[Any]) -> memoryview:
    """Floating-point values as they are, little-endian, to be joined with the rest."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False).data


class Reader:
    """Takes a message apart from the front; raises CompressError where it does not hold enough."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self._payload = memoryview(payload)
        self._at = 0

    def view(self, count: int) -> memoryview:
        """The next bytes, without a copy."""
        part = self._payload[self._at : self._at + count]
        if len(part) != count:
            raise CompressError(
                f"malformed message: {count} bytes expected at byte {self._at}, found {len(part)}"
            )
        self._at += count
        return part

    def number(self) -> int:
        number = 0
        for i, byte in enumerate(self._payload[self._at : self._at + _LONGEST_NUMBER]):
            number |= (byte & 127) << 7 * i
            if byte < 128:
                self._at += i + 1
                return number
        raise CompressError(f"malformed message: no number from byte {self._at} on has an end")

    def values(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Take `count` values of `dtype`, shape (count,), which must be finite; read only."""
        data = self.view(count * dtype.itemsize)
        values = np.frombuffer(data, dtype.newbyteorder("<"))
        if values.dtype != dtype or not values.flags.aligned:
            values = values.astype(dtype)
        if first_not_finite(values) < count:
            raise CompressError("malformed message: it holds values that are not finite")
        return values

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._payload)

    def rest(self) -> memoryview:
        return self.view(len(self._payload) - self._at)

    def end(self) -> None:
        if not self.is_empty:
            raise CompressError(
                f"malformed message: {len(self._payload) - self._at} bytes after its end"
            )


# Values per row, of 4 bytes. The engine names the rows of a chunk in a bitmap: wider rows make it
# shorter, and the last row emptier. With 64 a frame adds up to 520 bytes, and 1% of long messages.
_ROW = 64
_LENGTH_BYTES = 8
# All ranks must name one length, but their messages differ: it is that of the longest possible.
_POSITIONS = 2**31 - 1


def framed(message: bytes) -> SparseVector:
    """A message as the rows of a sparse vector, so that one index stands for many bytes.

    The first 8 bytes are the message's length, little-endian; zeros fill up the last row.
    """
    size = _LENGTH_BYTES + len(message)
    rows = -(-size // (4 * _ROW))
    values = np.zeros((rows, _ROW), np.int32)
    flat = values.reshape(-1).view(np.uint8)
    flat[:_LENGTH_BYTES] = np.frombuffer(len(message).to_bytes(_LENGTH_BYTES, "little"), np.uint8)
    flat[_LENGTH_BYTES:size] = np.frombuffer(message, np.uint8)
    return SparseVector(np.arange(rows, dtype=np.int32), values, _POSITIONS)


def unframed(indices: NDArray[Any], rows: NDArray[Any]) -> bytes:
    """The message that `framed` turned into `rows`: int32, shape (n, 64), indices ascending.

    Rows of zeros may be missing, because the engine need not send them.
    """
    if not (len(indices) and indices[0] == 0):
        return b""  # The first row has the length, which is zero then.
    length = int.from_bytes(rows[0].tobytes()[:_LENGTH_BYTES], "little")
    count = -(-(_LENGTH_BYTES + length) // (4 * _ROW))
    if len(indices) < count:
        whole = np.zeros((count, _ROW), np.int32)
        whole[indices] = rows
        rows = whole
    return rows.tobytes()[_LENGTH_BYTES : _LENGTH_BYTES + length]
