"""Threshold: all elements, or blocks, that are large enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marks
from sparsewire.compress.sparsifier import Choice, Sparsifier
from sparsewire.errors import CompressError


class Threshold(Sparsifier):
    """Sends the elements of magnitude at least `threshold`, as many as there are. Biased.

    The message is empty where there are none. The error has an absolute bound, `error_bound`, and
    no relative one, so that contraction is 0 (Sahu et al., Rethinking gradient sparsification as
    total error minimization, NeurIPS 2021, on the hard-threshold sparsifier). Zeros are never sent.
    """

    omega = float("inf")
    contraction = 0.0

    def __init__(
        self, dimension: int, threshold: float, block: int = 1, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, block, dtype)
        if not (threshold >= 0 and math.isfinite(threshold)):
            raise CompressError(f"the threshold must be a number of at least 0, not {threshold}")
        self.threshold = threshold
        self._least = self._least_kept()

    @property
    def error_bound(self) -> float:
        """An upper bound on ||C(x) - x||^2: each block dropped adds less than threshold^2."""
        return self.blocks.count * self.threshold**2

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        return Choice(Marks.reaching(self.blocks.sizes(x), self._least))

    def _least_kept(self) -> float:
        """The least number of `dtype` that is at least the threshold, and not zero."""
        limits = np.finfo(self.dtype)
        if self.threshold > float(limits.max):
            return math.inf
        rounded = self.dtype.type(self.threshold)
        if float(rounded) < self.threshold:
            rounded = np.nextafter(rounded, limits.max)
        return float(max(rounded, limits.smallest_subnormal))


class BlockThreshold(Threshold):
    """Sends the blocks whose l2 norm is at least `threshold`. Biased.

    Block Threshold of OmniReduce (Fei et al., SIGCOMM 2021).
    """

    def __init__(
        self, dimension: int, threshold: float, block: int = 256, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, threshold, block, dtype)
