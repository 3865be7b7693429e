"""Scales of blocks and signed levels of elements: the code of dithering and of signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.blocks import Blocks
from sparsewire.compress.vectors import add_scaled

_TILE = 1 << 15
"""About so many elements are made in one go; they stay in a cache."""


class Levels(NamedTuple):
    """Shapes (blocks,) and (dimension,). A symbol is a level plus the number of levels.

    Levels stand for fractions of at most 1, so that values are finite where the scales are.
    """

    scales: NDArray[Any]
    symbols: NDArray[np.uint8]


class LevelScale(NamedTuple):
    """What levels of elements mean: `undither` is the kernel that multiplies them by scales."""

    blocks: Blocks
    levels: int
    undither: Callable[..., None]

    def reconstruct(self, code: Levels) -> NDArray[Any]:
        """The vector that the code stands for, in the dtype of its scales."""
        values = np.empty(self.blocks.dimension, code.scales.dtype)
        self.undither(code.symbols, self.blocks.size, code.scales, self.levels, values)
        return values

    def add(self, code: Levels, total: NDArray[Any], factor: float = 1.0) -> None:
        """Add `factor` times that vector to `total`."""
        size = self.blocks.size
        blocks = max(1, _TILE // size)
        values = np.empty(min(blocks * size, self.blocks.dimension), code.scales.dtype)
        for first in range(0, self.blocks.count, blocks):
            elements = slice(first * size, min((first + blocks) * size, self.blocks.dimension))
            symbols = code.symbols[elements]
            tile, scales = values[: symbols.size], code.scales[first : first + blocks]
            self.undither(symbols, size, scales, self.levels, tile)
            add_scaled(tile, total[elements], factor)
