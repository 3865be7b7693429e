"""A code for which positions of a vector are sent, close to log2 binomial(universe, count) bits.

Few positions travel as Rice-coded gaps (Rice, Plaunt, Adaptive variable-length coding, 1971), the
low bits of all of them before the high ones, so that both are read without a loop. Many travel as
an entropy-coded bitmap. Neither the count nor the end is part of the code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.bit_fields import field_bytes, pack_fields, unpack_fields
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.errors import CompressError

_DENSE = 8
"""From one position in so many on, a bitmap is shorter than gaps."""


def encode_positions(positions: NDArray[np.int64], universe: int) -> bytes:
    """The code of ascending positions below `universe`, shape (count,)."""
    if positions.size in (0, universe):
        return b""
    if positions.size * _DENSE >= universe:
        bitmap = np.zeros(universe, np.uint8)
        bitmap[positions] = 1
        return encode_symbols(bitmap, 2)
    width = _low_bits(positions.size, universe)
    gaps = np.diff(positions, prepend=-1) - 1
    return pack_fields(gaps & ((1 << width) - 1), width) + _unary(gaps >> width)


def decode_positions(payload: bytes, count: int, universe: int) -> NDArray[np.int64]:
    """The positions again, ascending, shape (count,); raises CompressError if malformed."""
    if count in (0, universe):
        unpack_fields(payload, 0, 0)
        return np.arange(count)
    if count * _DENSE >= universe:
        positions = np.flatnonzero(decode_symbols(payload, universe, 2))
    else:
        positions = _from_gaps(payload, count, universe)
    if positions.size != count or positions[-1] >= universe:
        raise CompressError("malformed message: the positions do not fit the vector")
    return positions


def _from_gaps(payload: bytes, count: int, universe: int) -> NDArray[np.int64]:
    width = _low_bits(count, universe)
    split = field_bytes(count, width)
    low = unpack_fields(payload[:split], count, width)
    gaps = (_from_unary(payload[split:], count) << width) + low
    return np.cumsum(gaps + 1) - 1


def _low_bits(count: int, universe: int) -> int:
    """Bits of a gap that are sent as they are: the best number for gaps of this mean.

    One more pays from where 2^bits is below ln(golden ratio) = 0.481 of the mean: Kiely, Selecting
    the Golomb parameter in Rice coding, 2004. In integers, so that all machines agree.
    """
    return (481 * universe // (1000 * count)).bit_length()


def _unary(numbers: NDArray[np.int64]) -> bytes:
    ends = np.cumsum(numbers + 1) - 1
    bits = np.zeros(int(ends[-1]) + 1, np.uint8)
    bits[ends] = 1
    return np.packbits(bits).tobytes()


def _from_unary(payload: bytes, count: int) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(payload, np.uint8)))
    if ends.size != count or int(ends[-1]) // 8 + 1 != len(payload):
        raise CompressError("malformed message: the gaps between positions do not fit")
    return np.diff(ends, prepend=-1) - 1
