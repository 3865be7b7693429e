"""Bernoulli compression: a block, or the whole vector, is sent with probability p."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.errors import CompressError
from sparsewire.compress.kernels import uniforms
from sparsewire.compress.message import Reader
from sparsewire.compress.sparsifier import Choice, SeededSparsifier


class Bernoulli(SeededSparsifier):
    """Sends each block divided by p with probability p, else nothing; unbiased.

    One block of all elements unless `block` is given; 1 treats every element on its own. The
    message is empty where nothing is sent. omega = 1/p - 1, for every vector: E||C(x)||^2 =
    p ||x/p||^2.
    """

    def __init__(
        self,
        dimension: int,
        probability: float,
        block: int | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(dimension, block, dtype)
        if not 0 < probability <= 1:
            raise CompressError(f"the probability must be in (0, 1], not {probability}")
        self.probability = probability
        self.scale = 1 / probability

    @property
    def omega(self) -> float:
        return self.scale - 1

    def blocks_of(self, seed: int) -> NDArray[np.int64]:
        return np.flatnonzero(uniforms(seed, self.blocks.count) < self.probability)

    def describe(self, choice: Choice) -> bytes:
        # Of a single block, that there is a message says it all.
        return b"" if self.blocks.count == 1 else super().describe(choice)

    def read_choice(self, reader: Reader) -> Choice:
        return Choice(np.arange(1)) if self.blocks.count == 1 else super().read_choice(reader)
