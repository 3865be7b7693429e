"""Bernoulli compression: a block, or the whole vector, is sent with probability p."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from sparsewire.compress.marks import Marks
from sparsewire.compress.message import Reader
from sparsewire.compress.sparsifier import Choice, SeededSparsifier
from sparsewire.errors import CompressError

_COIN = 2**32


class Bernoulli(SeededSparsifier):
    """Sends each block divided by p with probability p, else nothing; unbiased.

    One block of all elements unless `block` is given; 1 treats every element on its own. The
    message is empty where nothing is sent. omega = 1/p - 1, for every vector: E||C(x)||^2 =
    p ||x/p||^2. Probabilities are rounded to multiples of 2^-32.
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
        self.probability = max(1, round(probability * _COIN)) / _COIN
        self.scale = 1 / self.probability

    @property
    def omega(self) -> float:
        return self.scale - 1

    def marks_of(self, seed: int) -> Marks:
        return Marks.coins(self.blocks.count, self.probability, seed)

    def describe(self, choice: Choice) -> bytes:
        # Of a single block, that there is a message says it all.
        return b"" if self.blocks.count == 1 else super().describe(choice)

    def read_choice(self, reader: Reader) -> Choice:
        if self.blocks.count == 1:
            return Choice(Marks.of(np.zeros(1, np.int64), 1))
        return super().read_choice(reader)
