"""Scales of blocks and signed levels of elements: the code of dithering and of signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.blocks import Blocks
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.message import Reader
from sparsewire.compress.vectors import add_scaled
from sparsewire.errors import CompressError

_TILE = 1 << 15
"""About so many elements are made in one go; they stay in a cache."""


class Levels(NamedTuple):
    """Shapes (blocks,) and (dimension,). A symbol is a level plus the number of levels.

    Levels stand for fractions of at most 1, so that values are finite where the scales are.
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
        scales = reader.values(self.blocks.count, self.dtype)
        if (scales < 0).any():
            raise CompressError(f"malformed message: a {what} is negative")
        return scales
