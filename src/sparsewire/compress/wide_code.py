"""Entropy code for alphabets that may be larger than a byte: two planes of symbols, if need be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.errors import CompressError

Symbols = NDArray[np.uint16] | NDArray[np.uint8]

_PLANE = 256


def encode_wide(symbols: NDArray[np.uint16], alphabet: int) -> bytes:
    """The code of symbols below `alphabet` (1 to 65536), shape (count,)."""
    low = symbols.astype(np.uint8)
    if alphabet <= _PLANE:
        return encode_symbols(low, alphabet)
    high = encode_symbols((symbols >> 8).astype(np.uint8), _high_alphabet(alphabet))
    return b"".join((number_bytes(len(high)), high, encode_symbols(low, _PLANE)))


def decode_wide(payload: bytes | memoryview, count: int, alphabet: int) -> Symbols:
    """The symbols again, shape (count,), of a byte where `alphabet` is at most 256.

    Raises CompressError if the code is malformed.
    """
    if alphabet <= _PLANE:
        return decode_symbols(payload, count, alphabet)
    reader = Reader(payload)
    high = decode_symbols(reader.view(reader.number()), count, _high_alphabet(alphabet))
    low = decode_symbols(reader.rest(), count, _PLANE)
    symbols: Symbols = high.astype(np.uint16) * np.uint16(_PLANE) + low
    if count and symbols.max() >= alphabet:
        raise CompressError("malformed message: a symbol is not in the alphabet")
    return symbols


def _high_alphabet(alphabet: int) -> int:
    return (alphabet - 1) // _PLANE + 1
