"""Natural compression: magnitudes rounded at random to a power of two."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.errors import CompressError
from sparsewire.compress.kernels import powers_of_two, round_to_exponents
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.compress.stream import Stream
from sparsewire.compress.wide_code import decode_wide, encode_wide


class Powers(NamedTuple):
    """The code: exponents as the floating-point type stores them, 0 for a zero, and signs."""

    exponents: NDArray[np.int64]
    negative: NDArray[np.bool_]


class Natural(Compressor):
    """Each element becomes one of the two powers of two around it; unbiased.

    omega = 1/8 (Horvath et al., Natural compression for distributed deep learning, arXiv
    1905.10988): an element of t times a power of two, 1 <= t < 2, adds the share (t - 1) (2 - t) of
    that power squared to the variance, which is at most t^2/8, at t = 4/3.

    The message holds signs and exponents, entropy coded. Below the smallest normal number, elements
    become that or zero: still unbiased, but the bound does not hold for them. Elements that may
    round to more than the type can hold raise CompressError.
    """

    @property
    def omega(self) -> float:
        return 1 / 8

    def draw(self, x: NDArray[Any], stream: Stream) -> Powers:
        exponents = round_to_exponents(x, stream.key())
        over = exponents >= self._exponent_limit
        if over.any():
            index = int(np.argmax(over))
            raise CompressError(f"element {index} is too large for a power of two: {x[index]}")
        return Powers(exponents, (x < 0) & (exponents > 0))

    @property
    def _exponent_limit(self) -> int:
        return 2 * int(np.finfo(self.dtype).maxexp) - 1

    def pack(self, code: Powers) -> bytes:
        """A symbol is 0 for a zero, else 1 + 2 (exponent - the least one) + (1 if negative).

        The least exponent comes first, 0 where all elements are zero.
        """
        used = code.exponents[code.exponents > 0]
        if not used.size:
            return number_bytes(0)
        least, most = int(used.min()), int(used.max())
        symbols = np.where(code.exponents > 0, 2 * (code.exponents - least) + 1 + code.negative, 0)
        span = most - least
        return number_bytes(least) + number_bytes(span) + encode_wide(symbols, 2 * span + 3)

    def unpack(self, reader: Reader) -> Powers:
        least = reader.number()
        if not least:
            return Powers(np.zeros(self.dimension, np.int64), np.zeros(self.dimension, bool))
        span = reader.number()
        if least + span >= self._exponent_limit:
            raise CompressError("malformed message: there are no such exponents")
        symbols = decode_wide(reader.rest(), self.dimension, 2 * span + 3)
        exponents = np.where(symbols > 0, (symbols - 1) // 2 + least, 0)
        return Powers(exponents, (symbols > 0) & (symbols % 2 == 0))

    def reconstruct(self, code: Powers) -> NDArray[Any]:
        return powers_of_two(code.exponents, code.negative, self.dtype)
