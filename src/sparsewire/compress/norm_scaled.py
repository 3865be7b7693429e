"""Operators that send a scale per block and, for each element, a signed level below it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.blocks import Blocks
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.errors import CompressError
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.compress.stream import Stream

LARGEST_LEVELS = 127


class Levels(NamedTuple):
    """The code: a scale for each block, and a symbol for each element.

    Symbol 0 is zero; 2l - 1 is level l, and 2l is level l of a negative element.
    """

    scales: NDArray[Any]
    symbols: NDArray[np.uint8]


class NormScaled(Compressor):
    """Each element becomes the norm of its block, times its sign, times one of `levels` fractions.

    The norm is `power`, 1 to inf, of blocks of `block` elements, of the whole vector where that is
    None. Levels are drawn so that the mean is kept; how is up to the subclass.
    """

    def __init__(
        self,
        dimension: int,
        levels: int,
        power: float = 2.0,
        block: int | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(dimension, dtype)
        if not 1 <= levels <= LARGEST_LEVELS:
            raise CompressError(f"there must be 1 to {LARGEST_LEVELS} levels, not {levels}")
        if not power >= 1:
            raise CompressError(f"the norm must be 1 to inf, not {power}")
        self.levels = levels
        self.power = float(power)
        self.blocks = Blocks(dimension, block)
        self._alphabet = 2 * levels + 1
        self._fractions = _signed(self.fractions())

    @abstractmethod
    def fractions(self) -> NDArray[np.float64]:
        """What the levels 1, 2, ... stand for, ascending to 1, shape (levels,)."""

    @abstractmethod
    def round(self, shares: NDArray[np.float64], key: int) -> NDArray[np.int64]:
        """Levels, 0 for zero, of shares in [0, 1] of the norm, such that the mean is kept."""

    def draw(self, x: NDArray[Any], stream: Stream) -> Levels:
        scales = self._scales(x)
        divisors = np.where(scales > 0, scales, 1).astype(np.float64)
        level = self.round(np.abs(x) / self.blocks.spread(divisors), stream.key())
        symbols = 2 * level - ((x > 0) & (level > 0))
        return Levels(scales, symbols.astype(np.uint8))

    def _scales(self, x: NDArray[Any]) -> NDArray[Any]:
        """Norms as they are sent; rounding leaves them at least the maximum of the block."""
        with np.errstate(over="ignore"):
            scales = self.blocks.norms(x, self.power).astype(self.dtype)
        if not np.isfinite(scales).all():
            raise CompressError(f"the norm of the vector is too large for {self.dtype}")
        return scales

    def pack(self, code: Levels) -> bytes:
        return value_bytes(code.scales) + encode_symbols(code.symbols, self._alphabet)

    def unpack(self, reader: Reader) -> Levels:
        scales = reader.values(self.blocks.count, self.dtype)
        if (scales < 0).any():
            raise CompressError("malformed message: a norm is negative")
        return Levels(scales, decode_symbols(reader.rest(), self.dimension, self._alphabet))

    def reconstruct(self, code: Levels) -> NDArray[Any]:
        scales = self.blocks.spread(code.scales).astype(np.float64)
        return (scales * self._fractions[code.symbols]).astype(self.dtype)


def _signed(fractions: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each symbol stands for, shape (2 levels + 1,)."""
    return np.concatenate([[0.0], np.stack([fractions, -fractions], axis=1).reshape(-1)])
