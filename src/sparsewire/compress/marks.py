"""Sets of positions as bitmaps, the form in which the native kernels draw, pack and place them; and
vectors cut into blocks, which they mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire import _core
from sparsewire.errors import CompressError

_WORD_BITS = 64


class Marks:
    """`count` of the positions below `universe`: bit i % 64 of word i // 64 stands for position i.

    `words` is of uint64, little-endian, with zeros behind the last position.
    """

    __slots__ = ("count", "universe", "words")

    def __init__(self, words: NDArray[np.uint64], universe: int, count: int) -> None:
        self.words = words
        self.universe = universe
        self.count = count

    @classmethod
    def none(cls, universe: int) -> Marks:
        return cls(np.zeros(-(-universe // _WORD_BITS), np.uint64), universe, 0)

    @classmethod
    def of(cls, positions: NDArray[Any], universe: int) -> Marks:
        """These positions, which are different."""
        flags = np.zeros(-(-universe // _WORD_BITS) * _WORD_BITS, np.uint8)
        flags[positions] = 1
        return cls(np.packbits(flags, bitorder="little").view("<u8"), universe, len(positions))

    @classmethod
    def subset(cls, universe: int, count: int, key: int) -> Marks:
        """`count` positions, all subsets equally likely; a function of the three numbers."""
        words = _blank(universe)
        _core.mark_rand_k(universe, count, key, words)
        return cls(words, universe, count)

    @classmethod
    def coins(cls, universe: int, probability: float, key: int) -> Marks:
        """Each with this probability, a multiple of 2^-32; a function of the three numbers."""
        words = _blank(universe)
        return cls(words, universe, _core.mark_bernoulli(universe, probability, key, words))

    @classmethod
    def largest(cls, values: NDArray[Any], count: int) -> Marks:
        """The `count` values of largest magnitude, of equal ones the first."""
        words = _blank(values.size)
        _core.mark_top_k(values, count, words)
        return cls(words, values.size, count)

    @classmethod
    def reaching(cls, values: NDArray[Any], magnitude: float) -> Marks:
        """The values of at least this magnitude, rounded to their dtype."""
        words = _blank(values.size)
        return cls(words, values.size, _core.mark_reaching(values, magnitude, words))

    def positions(self) -> NDArray[np.int64]:
        """The positions, ascending, shape (count,)."""
        flags = np.unpackbits(self.words.view(np.uint8), count=self.universe, bitorder="little")
        return flags.view(np.bool_).nonzero()[0]

    def encode(self) -> bytes:
        """A code of the positions, close to log2 binomial(universe, count) bits.

        Gaps between them in a Rice code (Rice, Plaunt, Adaptive variable-length coding, 1971), or
        those between the other positions, where these are fewer. Neither the count nor the end is
        part of the code.
        """
        return _core.encode_positions(self.words, self.universe, self.count)

    @classmethod
    def decode(cls, code: bytes | memoryview, universe: int, count: int) -> Marks:
        """The positions again, count <= universe; raises CompressError if malformed."""
        words = _blank(universe)
        if not _core.decode_positions(code, universe, count, words):
            raise CompressError("malformed message: the positions do not fit the vector")
        return cls(words, universe, count)


def _blank(universe: int) -> NDArray[np.uint64]:
    return np.empty(-(-universe // _WORD_BITS), "<u8")


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

    def norms_of_sum(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Add `y` to `x`; the l2 norms of the blocks of `x` then, as `norms` gives them."""
        norms = np.empty(self.count, x.dtype)
        _core.add_and_measure_blocks(x, y, self.size, norms)
        return norms

    def means(self, x: NDArray[Any]) -> NDArray[Any]:
        """The mean magnitude of each block, shape (count,), dtype of x."""
        means = np.empty(self.count, x.dtype)
        _core.block_means(x, self.size, means)
        return means

    def sizes(self, x: NDArray[Any]) -> NDArray[Any]:
        """The magnitude of each block: its l2 norm, or the element itself, signed."""
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
        _core.add_marked_blocks(values, self.size, marks.words, total)


class Marked(NamedTuple):
    """A vector of which few blocks are not zero: which these are, and their elements, packed."""

    marks: Marks
    values: NDArray[Any]
    blocks: Blocks

    @classmethod
    def mean(cls, vectors: Sequence[Marked]) -> Marked:
        """The mean of vectors of one dtype, cut alike, added up in their order."""
        blocks = vectors[0].blocks
        most = min(blocks.dimension, sum(vector.values.size for vector in vectors))
        words, means = _blank(blocks.count), np.empty(most, vectors[0].values.dtype)
        bitmaps, values = [each.marks.words for each in vectors], [each.values for each in vectors]
        cut = blocks.dimension, blocks.size
        count = _core.average_marked(bitmaps, values, *cut, words, means)
        marks = Marks(words, blocks.count, _core.count_marked(words, blocks.count, 1))
        return cls(marks, means[:count], blocks)
