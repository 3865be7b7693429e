"""Entropy code for alphabets that may be larger than a byte: two planes of symbols, if need be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.errors import CompressError
from sparsewire.compress.message import Reader, number_bytes

_PLANE = 256
LARGEST_ALPHABET = _PLANE * _PLANE


def encode_wide(symbols: NDArray[np.int64], alphabet: int) -> bytes:
    """The code of symbols below `alphabet` (1 to 65536), shape (count,)."""
    if alphabet <= _PLANE:
        return encode_symbols(symbols.astype(np.uint8), alphabet)
    high = encode_symbols((symbols // _PLANE).astype(np.uint8), _high_alphabet(alphabet))
    low = encode_symbols((symbols % _PLANE).astype(np.uint8), _PLANE)
    return number_bytes(len(high)) + high + low


def decode_wide(payload: bytes, count: int, alphabet: int) -> NDArray[np.int64]:
    """The symbols again, shape (count,); raises CompressError if the code is malformed."""
    if alphabet <= _PLANE:
        return decode_symbols(payload, count, alphabet).astype(np.int64)
    reader = Reader(payload)
    high = decode_symbols(reader.take(reader.number()), count, _high_alphabet(alphabet))
    low = decode_symbols(reader.rest(), count, _PLANE)
    symbols = high.astype(np.int64) * _PLANE + low
    if count and symbols.max() >= alphabet:
        raise CompressError("malformed message: a symbol is not in the alphabet")
    return symbols


def _high_alphabet(alphabet: int) -> int:
    return (alphabet - 1) // _PLANE + 1
