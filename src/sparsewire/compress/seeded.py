"""Sparsifiers that choose at random, without looking at the vector: a seed tells the choice."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marks
from sparsewire.compress.message import Reader
from sparsewire.compress.sparsifier import Choice, Sparsifier, check_kept
from sparsewire.errors import CompressError

_SEED_BYTES = 8
_COIN = 2**32


class SeededSparsifier(Sparsifier):
    """Chooses without looking at the vector, so that a seed of 8 bytes tells the choice."""

    @property
    def omega(self) -> float:
        return self.scale - 1

    @abstractmethod
    def marks_of(self, seed: int) -> Marks:
        """The blocks that a seed of 64 bits stands for."""

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        seed = draws.key()
        return Choice(self.marks_of(seed), seed)

    def describe(self, choice: Choice) -> bytes:
        return choice.seed.to_bytes(_SEED_BYTES, "little")

    def read_choice(self, reader: Reader) -> Choice:
        seed = int.from_bytes(reader.view(_SEED_BYTES), "little")
        return Choice(self.marks_of(seed), seed)


class RandK(SeededSparsifier):
    """Sends k of the d elements, all subsets equally likely, times d/k; unbiased.

    omega = d/k - 1, for every vector (Stich, Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS
    2018, lemma A.1; scaled). Each call draws a mask of its own.
    """

    def __init__(
        self, dimension: int, k: int, block: int = 1, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, block, dtype)
        self.kept_blocks: int = check_kept(k, self.blocks.count)
        self.scale = self.blocks.count / k

    def marks_of(self, seed: int) -> Marks:
        return Marks.subset(self.blocks.count, self.kept_blocks, seed)


class BlockRandomK(RandK):
    """Sends k of the n blocks times n/k; unbiased with omega = n/k - 1.

    Block Random-k of OmniReduce (Fei et al., Efficient sparse collective communication and its
    application to accelerate distributed deep learning, SIGCOMM 2021), which does not scale: that
    is `Contractive` of this one.
    """

    def __init__(
        self, dimension: int, k: int, block: int = 256, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, k, block, dtype)


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

    def marks_of(self, seed: int) -> Marks:
        return Marks.coins(self.blocks.count, self.probability, seed)

    def describe(self, choice: Choice) -> bytes:
        # The mere presence of a message tells the choice of a single block.
        return b"" if self.blocks.count == 1 else super().describe(choice)

    def read_choice(self, reader: Reader) -> Choice:
        if self.blocks.count == 1:
            return Choice(Marks.of(np.zeros(1, np.int64), 1))
        return super().read_choice(reader)


class Unscaled(Sparsifier):
    """An unbiased sparsifier without its scale: its `Contractive` form, and still a sparsifier.

    contraction = 1/(omega + 1), since its scale is omega + 1. The message is the same.
    """

    omega = float("inf")

    def __init__(self, inner: SeededSparsifier) -> None:
        super().__init__(inner.dimension, inner.blocks.size, inner.dtype)
        self.inner = inner
        self.kept_blocks = inner.kept_blocks

    @property
    def contraction(self) -> float:
        return self.inner.contraction

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        return self.inner.choose(x, draws)

    def describe(self, choice: Choice) -> bytes:
        return self.inner.describe(choice)

    def read_choice(self, reader: Reader) -> Choice:
        return self.inner.read_choice(reader)


def unscaled(sparsifier: Sparsifier) -> Sparsifier:
    """The sparsifier without its scale, if it has one."""
    return Unscaled(sparsifier) if isinstance(sparsifier, SeededSparsifier) else sparsifier
