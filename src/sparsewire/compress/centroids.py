"""Two magnitudes per span and a sign: the centroids of a span's own magnitudes in two classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire import _core
from sparsewire.compress.draws import Draws
from sparsewire.compress.levels import Levels, SignedLevels
from sparsewire.compress.message import Reader

LEVELS = 2
"""Zero is level 0, the low magnitude 1, and the high one 2."""


class Centroids(SignedLevels):
    """Each element becomes the mean of its class of magnitudes, times its sign, by spans. Biased.

    A span of `span` elements has two classes, the large magnitudes and the small ones, split for
    the least squared error: 2-means in one dimension, solved exactly. Zeros stay zero, and belong
    to no class. So it is a projection: ||x - C(x)||^2 = ||x||^2 - ||C(x)||^2, up to rounding.

    contraction = 1/h with h = sum over j = 1 ... d of (sqrt(j) - sqrt(j - 1))^2 of spans of d,
    which is about 1 + ln(d)/4. Of magnitudes m_1 >= m_2 >= ... with sums S_j, C keeps at least
    S_j^2/j for every j, as it may split behind the j-th. If it keeps g at most, S_j <= sqrt(g j)
    for all j, and the largest ||x||^2 with such sums (Karamata's inequality) is that of
    m_j = sqrt(g) (sqrt(j) - sqrt(j - 1)), which is g h.

    Over a sparsifier that keeps `span` elements of each of its spans, such as
    centroids:64+span-top-k:64:4096, the spans are the same. Where it keeps fewer, because there are
    zeros, what is kept moves up, and later spans begin elsewhere. Nothing of the above changes.
    """

    omega = float("inf")

    def __init__(self, dimension: int, span: int = 512, dtype: DTypeLike = np.float32) -> None:
        super().__init__(dimension, LEVELS, span, dtype)

    @staticmethod
    def _undither(
        symbols: NDArray[np.uint8],
        span: int,
        magnitudes: NDArray[Any],
        levels: int,
        values: NDArray[Any],
    ) -> None:
        _core.centroid_values(symbols, span, magnitudes, values)

    @property
    def contraction(self) -> float:
        roots = np.sqrt(np.arange(self.blocks.size + 1))
        return 1 / math.fsum(np.diff(roots) ** 2)

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        magnitudes = np.empty((self.blocks.count, LEVELS), self.dtype)
        symbols = np.empty(self.dimension, np.uint8)
        _core.take_centroids(x, self.blocks.size, magnitudes, symbols)
        return Levels(magnitudes, symbols)

    def _read_scales(self, reader: Reader, what: str) -> NDArray[Any]:
        return self._not_negative(reader, LEVELS * self.blocks.count, what).reshape(-1, LEVELS)
