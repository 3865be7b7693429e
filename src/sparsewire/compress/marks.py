"""Sets of positions as bitmaps: the form in which the native kernels draw, pack and place them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire import _core

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


class Marked(NamedTuple):
    """A vector of which few elements are not zero: where they are, and their values, packed."""

    marks: Marks
    values: NDArray[Any]

    @classmethod
    def mean(cls, vectors: Sequence[Marked]) -> Marked:
        """The mean of vectors of one length and dtype, added up in their order."""
        universe = vectors[0].marks.universe
        most = min(universe, sum(vector.marks.count for vector in vectors))
        words, means = _blank(universe), np.empty(most, vectors[0].values.dtype)
        bitmaps, values = [each.marks.words for each in vectors], [each.values for each in vectors]
        count = _core.average_marked(bitmaps, values, universe, words, means)
        return cls(Marks(words, universe, count), means[:count])


def _blank(universe: int) -> NDArray[np.uint64]:
    return np.empty(-(-universe // _WORD_BITS), "<u8")
