"""A scale per block and a signed level for each element, and operators that take the nearest level:
signs, and rounding to so few levels that the difference is exact."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire._core import multiples, nearest_multiples, take_signs, undither
from sparsewire.compress.compressor import Compressor, finite
from sparsewire.compress.draws import Draws
from sparsewire.compress.entropy_code import (
    decode_symbols,
    decode_wide,
    encode_symbols,
    encode_wide,
)
from sparsewire.compress.marks import Blocks
from sparsewire.compress.message import Reader, number_bytes, value_bytes
from sparsewire.compress.vectors import add_scaled
from sparsewire.errors import CompressError

_TILE = 1 << 15
"""About so many elements are made in one go; they stay in a cache."""


class Levels(NamedTuple):
    """Shapes (blocks,) and (dimension,); symbols are levels plus their number, products finite.

    Of `Centroids`, a block has two scales: shape (blocks, 2).
    """

    scales: NDArray[Any]
    symbols: NDArray[np.uint8]


class Leveled(Compressor):
    """An operator whose code is `Levels`, of blocks of `block` elements, with so many levels.

    `_undither` is the kernel that multiplies levels by scales.
    """

    _undither: ClassVar[Callable[..., None]]

    def __init__(self, dimension: int, levels: int, block: int | None, dtype: DTypeLike) -> None:
        super().__init__(dimension, dtype)
        self.levels = levels
        self.blocks = Blocks(dimension, block)

    def reconstruct(self, code: Levels) -> NDArray[Any]:
        values = np.empty(self.dimension, self.dtype)
        self._undither(code.symbols, self.blocks.size, code.scales, self.levels, values)
        return values

    def add(self, code: Levels, total: NDArray[Any], factor: float = 1.0) -> None:
        size = self.blocks.size
        blocks = max(1, _TILE // size)
        values = np.empty(min(blocks * size, self.dimension), self.dtype)
        for first in range(0, self.blocks.count, blocks):
            elements = slice(first * size, min((first + blocks) * size, self.dimension))
            symbols = code.symbols[elements]
            tile, scales = values[: symbols.size], code.scales[first : first + blocks]
            self._undither(symbols, size, scales, self.levels, tile)
            add_scaled(tile, total[elements], factor)

    def _read_scales(self, reader: Reader, what: str) -> NDArray[Any]:
        return self._not_negative(reader, self.blocks.count, what)

    def _not_negative(self, reader: Reader, count: int, what: str) -> NDArray[Any]:
        scales = reader.values(count, self.dtype)
        if (scales < 0).any():
            raise CompressError(f"malformed message: a {what} is negative")
        return scales


class SignedLevels(Leveled):
    """Its message begins with the number of symbols: as a rule there are no zeros, and one less."""

    def pack(self, code: Levels) -> bytes:
        symbols, alphabet = code.symbols, 2 * self.levels + 1
        if not (symbols == self.levels).any():
            alphabet -= 1
            symbols = symbols - (symbols > self.levels)
        coded = encode_symbols(symbols, alphabet)
        return b"".join((bytes([alphabet]), value_bytes(code.scales), coded))

    def unpack(self, reader: Reader) -> Levels:
        alphabet, signs = reader.view(1)[0], 2 * self.levels
        if alphabet not in (signs, signs + 1):
            raise CompressError(f"malformed message: there are no {alphabet} symbols")
        scales = self._read_scales(reader, "mean magnitude")
        symbols = decode_symbols(reader.rest(), self.dimension, alphabet)
        if alphabet == signs:
            symbols += symbols >= self.levels
        return Levels(scales, symbols)


class Sign(SignedLevels):
    """Each element becomes mean |x| sign(x), by blocks of `block` elements. Biased.

    contraction = 1/d of a block of d, as a vector with a single element reaches for large d; of a
    vector x it is ||x||_1^2 / (d ||x||^2) (Karimireddy et al., Error feedback fixes SignSGD, ICML
    2019, lemma 8). Zeros stay zero, which makes the error no larger.

    The code is that of one level, with means in place of norms.
    """

    omega = float("inf")
    _undither = staticmethod(undither)

    def __init__(
        self, dimension: int, block: int | None = None, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, 1, block, dtype)

    @property
    def contraction(self) -> float:
        return 1 / self.blocks.size

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        symbols = np.empty(self.dimension, np.uint8)
        take_signs(x, symbols)
        return Levels(self.blocks.means(x), symbols)


class PowerScaled(Leveled):
    """Its scales are powers of two, from the smallest normal number on, and travel as exponents."""

    def __init__(self, dimension: int, levels: int, block: int | None, dtype: DTypeLike) -> None:
        super().__init__(dimension, levels, block, dtype)
        limits = np.finfo(self.dtype)
        self._alphabet = 2 * self.levels + 1
        self._powers = int(limits.maxexp) - int(limits.minexp)
        self._mantissa = int(limits.nmant)
        self._word = np.dtype(f"u{self.dtype.itemsize}")

    @property
    @abstractmethod
    def largest_safe(self) -> float:
        """Scales up to this have finite products with all levels."""

    def pack(self, code: Levels) -> bytes:
        # A power of two is known by the bits of its exponent; the least exponent is 1.
        exponents = (code.scales.view(self._word) >> self._mantissa) - 1
        scales = encode_wide(exponents, self._powers)
        symbols = encode_symbols(code.symbols, self._alphabet)
        return b"".join((number_bytes(len(scales)), scales, symbols))

    def unpack(self, reader: Reader) -> Levels:
        exponents = decode_wide(reader.view(reader.number()), self.blocks.count, self._powers)
        scales = ((exponents.astype(self._word) + 1) << self._mantissa).view(self.dtype)
        code = Levels(scales, decode_symbols(reader.rest(), self.dimension, self._alphabet))
        if float(scales.max()) > self.largest_safe:
            finite(self.reconstruct(code))
        return code


class Rounded(PowerScaled):
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
    _undither = staticmethod(multiples)

    def __init__(
        self, dimension: int, bits: int, span: int | None = None, dtype: DTypeLike = np.float32
    ) -> None:
        if not 2 <= bits <= 8:
            raise CompressError(f"a level has 2 to 8 bits, not {bits}")
        super().__init__(dimension, (1 << (bits - 1)) - 1, span, dtype)

    @property
    def contraction(self) -> float:
        reach: float = (self.levels + 0.5) ** 2
        return min(1 - 1 / reach, (reach - 1) / (reach + self.blocks.size - 1))

    @property
    def largest_safe(self) -> float:
        return float(np.finfo(self.dtype).max) / self.levels

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        steps = np.empty(self.blocks.count, self.dtype)
        symbols = np.empty(self.dimension, np.uint8)
        nearest_multiples(x, self.blocks.size, self.levels, steps, symbols)
        return Levels(steps, symbols)
