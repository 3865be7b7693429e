"""Top-k: the k elements, or blocks, that are largest by magnitude, norm, or norm ratio."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sparsewire.compress.marks import Marks
from sparsewire.compress.sparsifier import Choice, Sparsifier, check_kept
from sparsewire.compress.stream import Stream
from sparsewire.compress.vectors import as_vector


class TopK(Sparsifier):
    """Sends the k elements of largest magnitude; of equal ones the first. Biased.

    contraction = k/d (Stich, Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018, lemma
    A.1), reached where all magnitudes are equal.
    """

    omega = float("inf")

    def __init__(
        self, dimension: int, k: int, block: int = 1, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, block, dtype)
        self.kept_blocks: int = check_kept(k, self.blocks.count)

    @property
    def contraction(self) -> float:
        return self.kept_blocks / self.blocks.count

    def choose(self, x: NDArray[Any], stream: Stream) -> Choice:
        return Choice(Marks.largest(self._sizes(x), self.kept_blocks))

    def _sizes(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.blocks.sizes(x)


class BlockTopK(TopK):
    """Sends the k of n blocks that have the largest l2 norm. Biased, contraction = k/n.

    Block Top-k of OmniReduce (Fei et al., SIGCOMM 2021).
    """

    def __init__(
        self, dimension: int, k: int, block: int = 256, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, k, block, dtype)


class BlockTopKRatio(BlockTopK):
    """Sends the k blocks whose l2 norm is largest relative to that of the parameters there. Biased.

    Block Top-k Ratio of OmniReduce (Fei et al., SIGCOMM 2021). `parameters`, shape (dimension,),
    are those that the vector is an update of; call `follow` when they change. Without them the
    norms are compared as they are.

    With p_b the norms of the parameters' blocks, contraction = (sum of the k least p_b^2) / (sum of
    all p_b^2): what is kept has ratios of at least, and what is dropped of at most, some r, so that
    the share kept is least where all ratios are equal and the k least p_b are kept.
    """

    def __init__(
        self,
        dimension: int,
        k: int,
        block: int = 256,
        dtype: DTypeLike = np.float32,
        parameters: ArrayLike | None = None,
    ) -> None:
        super().__init__(dimension, k, block, dtype)
        self._scales = np.ones(self.blocks.count)
        if parameters is not None:
            self.follow(parameters)

    def follow(self, parameters: Any) -> None:
        """Compare with these parameters from now on; raises CompressError as `encode` does."""
        vector = as_vector(parameters, self.dimension, self.dtype)
        self._scales = self.blocks.norms(vector).astype(np.float64)

    @property
    def contraction(self) -> float:
        top = float(self._scales.max())
        if top == 0:
            return self.kept_blocks / self.blocks.count
        squares = np.sort(self._scales / top) ** 2
        return float(squares[: self.kept_blocks].sum() / squares.sum())

    def _sizes(self, x: NDArray[Any]) -> NDArray[Any]:
        norms = self.blocks.norms(x).astype(np.float64)
        if not self._scales.any():
            return norms
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratios = norms / self._scales
        return np.where(norms > 0, ratios, 0.0)
