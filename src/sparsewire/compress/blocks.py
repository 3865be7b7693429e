"""A vector cut into blocks of equal size, the last of which may be shorter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.errors import CompressError


class Blocks:
    """The blocks of `size` elements of vectors of `dimension`; one block where size is None."""

    def __init__(self, dimension: int, size: int | None = None) -> None:
        if size is not None and size < 1:
            raise CompressError(f"a block has at least 1 element, not {size}")
        self.dimension = dimension
        self.size = dimension if size is None else min(size, dimension)
        self.count = -(-dimension // self.size)

    def largest(self, sizes: NDArray[Any]) -> NDArray[Any]:
        """The maximum of each block, shape (count,)."""
        return np.maximum.reduceat(sizes, self._starts())

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of each block, shape (count,)."""
        return np.add.reduceat(values, self._starts())

    def norms(self, x: NDArray[Any], power: float = 2.0) -> NDArray[np.float64]:
        """The l_power norm of each block, shape (count,); safe from overflow on the way."""
        sizes = np.abs(x, dtype=np.float64)
        top = self.largest(sizes)
        if np.isinf(power):
            return top
        shares = sizes / self.spread(np.where(top > 0, top, 1.0))
        with np.errstate(over="ignore"):
            norms: NDArray[np.float64] = top * self.sums(shares**power) ** (1 / power)
        return norms

    def spread(self, per_block: NDArray[Any]) -> NDArray[Any]:
        """The number of its block for each element, shape (dimension,)."""
        return np.repeat(per_block, self.size)[: self.dimension]

    def elements(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of all elements of these blocks, in their order."""
        if self.size == 1:
            return blocks
        positions = (blocks[:, None] * self.size + np.arange(self.size)).reshape(-1)
        return positions[positions < self.dimension]

    def _starts(self) -> NDArray[np.int64]:
        return np.arange(0, self.dimension, self.size)
