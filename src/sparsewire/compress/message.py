"""The bytes of a message: little-endian numbers and values, read with every length checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import first_not_finite
from sparsewire.errors import CompressError

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

    def take(self, count: int) -> bytes:
        return bytes(self.view(count))

    def view(self, count: int) -> memoryview:
        """The same without a copy."""
        part = self._payload[self._at : self._at + count]
        if len(part) != count:
            raise CompressError(
                f"malformed message: {count} bytes expected at byte {self._at}, found {len(part)}"
            )
        self._at += count
        return part

    def number(self) -> int:
        number = 0
        for shift in range(0, 7 * _LONGEST_NUMBER, 7):
            byte = self.view(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise CompressError(f"malformed message: no number ends before byte {self._at}")

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
