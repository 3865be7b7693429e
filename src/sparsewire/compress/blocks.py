"""A vector cut into blocks of equal size, the last of which may be shorter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire import _core
from sparsewire.compress.marks import Marks
from sparsewire.errors import CompressError


class Blocks:
    """The blocks of `size` elements of vectors of `dimension`; one block where size is None."""

    def __init__(self, dimension: int, size: int | None = None) -> None:
        if size is not None and size < 1:
            raise CompressError(f"a block has at least 1 element, not {size}")
        self.dimension = dimension
        self.size = dimension if size is None else min(size, dimension)
        self.count = -(-dimension // self.size)

    def norms(self, x: NDArray[Any], power: float = 2.0) -> NDArray[Any]:
        """The l_power norm of each block, shape (count,), dtype of x; infinite if too large.

        At least the largest magnitude of the block, up to rounding for power 1. Powers other than
        1, 2 and infinity are good to six digits.
        """
        norms = np.empty(self.count, x.dtype)
        _core.block_norms(x, self.size, power, norms)
        return norms

    def means(self, x: NDArray[Any]) -> NDArray[Any]:
        """The mean magnitude of each block, shape (count,), dtype of x."""
        means = np.empty(self.count, x.dtype)
        _core.block_means(x, self.size, means)
        return means

    def sizes(self, x: NDArray[Any]) -> NDArray[Any]:
        """What tells how large each block is: its l2 norm, or the element itself, signed."""
        return x if self.size == 1 else self.norms(x)

    def elements(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of all elements of these blocks, in their order."""
        if self.size == 1:
            return blocks
        positions = (blocks[:, None] * self.size + np.arange(self.size)).reshape(-1)
        return positions[positions < self.dimension]

    def marked_elements(self, marks: Marks) -> int:
        """How many elements these blocks have."""
        if self.size == 1:
            return marks.count
        return _core.count_marked(marks.words, self.dimension, self.size)

    def gather(self, x: NDArray[Any], marks: Marks) -> NDArray[Any]:
        """The elements of these blocks, one behind another, of x, shape (dimension,)."""
        values = np.empty(self.marked_elements(marks), x.dtype)
        _core.gather_blocks(x, self.size, marks.words, values)
        return values

    def scatter(self, values: NDArray[Any], marks: Marks) -> NDArray[Any]:
        """The vector with what `gather` took at its places and zeros elsewhere."""
        result = np.zeros(self.dimension, values.dtype)
        _core.scatter_blocks(values, self.size, marks.words, result)
        return result

    def add(self, values: NDArray[Any], marks: Marks, total: NDArray[Any]) -> None:
        """Add `values` to these blocks of `total`, shape (dimension,), of the same dtype."""
        _core.scatter_blocks(self.gather(total, marks) + values, self.size, marks.words, total)
