"""What a message holds for one parameter: an operator's code, or the vector as it is.

A record is the number 4 * bytes + 2 * is_idle + is_exact (LEB128), and that many bytes. Exact ones
are float32, little-endian.
"""

from __future__ import annotations

from typing import NamedTuple

from sparsewire.compress.message import Reader, number_bytes


class Record(NamedTuple):
    """One record.

    `is_exact`: the payload is the vector as it is, finite or not. `is_idle`: the gradient of this
    step is zero, so that what is sent was owed from steps before.
    """

    is_exact: bool
    is_idle: bool
    payload: bytes

    def encode(self) -> bytes:
        return number_bytes(4 * len(self.payload) + 2 * self.is_idle + self.is_exact) + self.payload

    @classmethod
    def read(cls, reader: Reader) -> Record:
        """The next record of a message; raises CompressError if it is malformed."""
        number = reader.number()
        return cls(bool(number & 1), bool(number & 2), bytes(reader.view(number >> 2)))
