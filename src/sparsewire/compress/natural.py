"""Natural compression: magnitudes rounded at random to a power of two."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire._core import natural_compress, natural_decompress
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.draws import Draws
from sparsewire.compress.entropy_code import Symbols, decode_wide, encode_wide
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.errors import CompressError


class Powers(NamedTuple):
    """The code: symbols, 0 for a zero; `base` is to be added to the others.

    The sum is twice the exponent as the floating-point type stores it, and 1 more if negative.
    """

    symbols: Symbols
    base: int


class Natural(Compressor):
    """Each element becomes one of the two powers of two around it; unbiased.

    omega = 1/8 (Horvath et al., Natural compression for distributed deep learning, arXiv
    1905.10988): an element of t times a power of two, 1 <= t < 2, adds the share (t - 1) (2 - t) of
    that power squared to the variance, which is at most t^2/8, at t = 4/3.

    The message holds signs and exponents, entropy coded. Below the smallest normal number, elements
    become that or zero: still unbiased, but the bound does not hold for them. Elements that may
    round to more than the type can hold raise CompressError.
    """

    def __init__(self, dimension: int, dtype: DTypeLike = np.float32) -> None:
        super().__init__(dimension, dtype)
        # The exponent of infinity.
        self._exponent_limit = 2 * int(np.finfo(self.dtype).maxexp) - 1

    @property
    def omega(self) -> float:
        return 1 / 8

    def draw(self, x: NDArray[Any], draws: Draws) -> Powers:
        symbols = np.empty(self.dimension, np.uint16)
        natural_compress(x, draws.key(), symbols)
        if symbols.max() >= 2 * self._exponent_limit:
            index = int(symbols.argmax())
            raise CompressError(f"element {index} is too large for a power of two: {x[index]}")
        return Powers(symbols, 0)

    def pack(self, code: Powers) -> bytes:
        """The least exponent, or 0 where all elements are zero; how far the largest is; symbols.

        A symbol is 0 for a zero, else 1 + 2 (exponent - the least one) + (1 if negative).
        """
        most = (int(code.symbols.max()) + code.base) // 2
        if most == 0:
            return number_bytes(0)
        # Zero becomes the largest number of all.
        symbols = code.symbols - np.uint16(1)
        least = (int(symbols.min()) + 1 + code.base) // 2
        span = most - least
        below = np.uint16(_base_of(least) - code.base)
        np.maximum(code.symbols, below, out=symbols)
        symbols -= below
        head = number_bytes(least) + number_bytes(span)
        return b"".join((head, encode_wide(symbols, 2 * span + 3)))

    def unpack(self, reader: Reader) -> Powers:
        least = reader.number()
        if not least:
            return Powers(np.zeros(self.dimension, np.uint16), 0)
        span = reader.number()
        if least + span >= self._exponent_limit:
            raise CompressError("malformed message: there are no such exponents")
        symbols = decode_wide(reader.rest(), self.dimension, 2 * span + 3)
        return Powers(symbols, _base_of(least))

    def reconstruct(self, code: Powers) -> NDArray[Any]:
        values = np.empty(self.dimension, self.dtype)
        natural_decompress(code.symbols, code.base, values)
        return values


def _base_of(least: int) -> int:
    """The base with which symbols of exponents from `least` on begin with 1."""
    return 2 * least - 1
