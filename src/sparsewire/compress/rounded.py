"""Rounding to the nearest of few levels, so that what is lost is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.draws import Draws
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.levels import Leveled, Levels
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.compress.wide_code import decode_wide, encode_wide
from sparsewire.errors import CompressError


def _multiply(
    symbols: NDArray[np.uint8],
    span: int,
    steps: NDArray[Any],
    levels: int,
    values: NDArray[Any],
) -> None:
    """The values of levels, without rounding."""
    np.subtract(symbols, levels, out=values, dtype=values.dtype)
    values *= np.repeat(steps, span)[: values.size]


class Rounded(Leveled):
    """Each element becomes the nearest multiple of a power of two that its span shares. Biased.

    There are `bits` (2 to 8) for a level and its sign, so s = 2^(bits-1) - 1 levels of either sign.
    The step is the least power of two, from the smallest normal number on, whose levels hold the
    largest magnitude of the span. What an element becomes is zero or within a factor of two of it,
    so that the difference has no rounding error (Sterbenz): with error feedback, nothing is lost.

    contraction = min(1 - 1/T, (T - 1)/(T + d - 1)) of spans of d, with T = (s + 1/2)^2: in steps,
    the largest magnitude t has 4 t^2 >= T, and |x|^2 - |x - C(x)|^2 >= x^2 - 1/4 for what is sent.
    It does not hold where magnitudes are within a level of the largest number of all, or below the
    smallest normal one.
    """

    omega = float("inf")
    _undither = staticmethod(_multiply)

    def __init__(
        self, dimension: int, bits: int, span: int | None = None, dtype: DTypeLike = np.float32
    ) -> None:
        if not 2 <= bits <= 8:
            raise CompressError(f"a level has 2 to 8 bits, not {bits}")
        super().__init__(dimension, (1 << (bits - 1)) - 1, span, dtype)
        self.bits = bits
        limits = np.finfo(self.dtype)
        self._least, self._most = int(limits.minexp), int(limits.maxexp) - 1

    @property
    def contraction(self) -> float:
        reach: float = (self.levels + 0.5) ** 2
        return min(1 - 1 / reach, (reach - 1) / (reach + self.blocks.size - 1))

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        fractions, exponents = np.frexp(self.blocks.norms(x, np.inf))
        # Where the largest would be rounded up to one level too many, the step is the next one.
        exponents += np.where(fractions >= 1 - 2.0**-self.bits, 2 - self.bits, 1 - self.bits)
        exponents[fractions == 0] = self._least
        steps = self._steps(np.clip(exponents, self._least, self._most))
        limits = self._spread(self._limits(steps))
        levels = np.clip(np.rint(x / self._spread(steps)), -limits, limits)
        return Levels(steps, (levels + self.levels).astype(np.uint8))

    def _steps(self, exponents: NDArray[Any]) -> NDArray[Any]:
        steps: NDArray[Any] = np.ldexp(self.dtype.type(1), exponents)
        return steps

    def _limits(self, steps: NDArray[Any]) -> NDArray[Any]:
        """The largest levels whose product with the step is a number."""
        with np.errstate(over="ignore"):
            limits = np.floor(np.finfo(self.dtype).max / steps)
        least: NDArray[Any] = np.minimum(limits, self.levels)
        return least

    def _spread(self, each: NDArray[Any]) -> NDArray[Any]:
        """What spans have, for each element."""
        return np.repeat(each, self.blocks.size)[: self.dimension]

    def pack(self, code: Levels) -> bytes:
        exponents = (np.frexp(code.scales)[1] - (self._least + 1)).astype(np.uint16)
        steps = encode_wide(exponents, self._most - self._least + 1)
        symbols = encode_symbols(code.symbols, 2 * self.levels + 1)
        return b"".join((number_bytes(len(steps)), steps, symbols))

    def unpack(self, reader: Reader) -> Levels:
        coded = reader.view(reader.number())
        exponents = decode_wide(coded, self.blocks.count, self._most - self._least + 1)
        steps = self._steps(exponents.astype(np.int32) + self._least)
        symbols = decode_symbols(reader.rest(), self.dimension, 2 * self.levels + 1)
        levels = np.abs(symbols.astype(np.int16) - self.levels)
        if (levels > self._spread(self._limits(steps))).any():
            raise CompressError("malformed message: a level is larger than any number")
        return Levels(steps, symbols)
