"""A static entropy code for symbols of a small alphabet: interleaved rANS, in the native kernels.

Duda, Asymmetric numeral systems: entropy coding combining speed of Huffman coding with compression
rate of arithmetic coding, arXiv 1311.2540. The number of symbols is not part of the code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import entropy_bound, entropy_decode, entropy_encode
from sparsewire.errors import CompressError


def encode_symbols(symbols: NDArray[np.uint8], alphabet: int) -> bytes:
    """The code of symbols below `alphabet` (1 to 256), shape (count,).

    Raises CompressError for symbols that are not below it.
    """
    _check_alphabet(alphabet)
    given = np.ascontiguousarray(symbols, np.uint8)
    code = np.empty(entropy_bound(given.size), np.uint8)
    try:
        size = entropy_encode(given, alphabet, code)
    except ValueError:
        raise CompressError(f"symbol {given.max()} is not in an alphabet of {alphabet}") from None
    return code[:size].tobytes()


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
