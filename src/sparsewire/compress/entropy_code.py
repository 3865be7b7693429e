"""A static entropy code for symbols: interleaved rANS, in the native kernels.

Duda, Asymmetric numeral systems: entropy coding combining speed of Huffman coding with compression
rate of arithmetic coding, arXiv 1311.2540. The number of symbols is not part of the code. Alphabets
larger than a byte take two planes of symbols.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import entropy_decode, entropy_encode
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.errors import CompressError

Symbols = NDArray[np.uint16] | NDArray[np.uint8]

_PLANE = 256


def encode_symbols(symbols: NDArray[np.uint8], alphabet: int) -> bytes:
    """The code of symbols below `alphabet` (1 to 256), shape (count,).

    Raises CompressError for symbols that are not below it.
    """
    _check_alphabet(alphabet)
    given = np.ascontiguousarray(symbols, np.uint8)
    try:
        return entropy_encode(given, alphabet)
    except ValueError:
        raise CompressError(f"symbol {given.max()} is not in an alphabet of {alphabet}") from None


def decode_symbols(payload: bytes | memoryview, count: int, alphabet: int) -> NDArray[np.uint8]:
    """The `count` symbols of a code, shape (count,); raises CompressError if it is malformed."""
    _check_alphabet(alphabet)
    symbols = np.empty(count, np.uint8)
    if not entropy_decode(payload, alphabet, symbols):
        raise CompressError(
            f"malformed message: no entropy code of {count} symbols of an alphabet of {alphabet}"
        )
    return symbols


def _check_alphabet(alphabet: int) -> None:
    if not 1 <= alphabet <= 256:
        raise CompressError(f"an alphabet has 1 to 256 symbols, not {alphabet}")


def encode_wide(symbols: NDArray[Any], alphabet: int) -> bytes:
    """The code of unsigned symbols below `alphabet` (1 to 65536), shape (count,)."""
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
