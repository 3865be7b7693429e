"""Random-k: k elements, or blocks, drawn without replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from sparsewire.compress.marks import Marks
from sparsewire.compress.sparsifier import SeededSparsifier, check_kept


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

    @property
    def omega(self) -> float:
        return self.scale - 1

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
