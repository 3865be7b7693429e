"""Sparsifiers that look at sizes: top-k, of all, of spans or of blocks, and thresholds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sparsewire import _core
from sparsewire._core import first_not_finite
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marks
from sparsewire.compress.sparsifier import Choice, Kept, Sparsifier, check_kept
from sparsewire.compress.vectors import as_vector, check_finite
from sparsewire.errors import CompressError


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

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        return self._largest(self.blocks.sizes(x))

    def _largest(self, sizes: NDArray[Any]) -> Choice:
        """The choice where this is what `Blocks.sizes` gives."""
        return Choice(Marks.largest(sizes, self.kept_blocks))


class SpanTopK(Sparsifier):
    """Sends the k elements of largest magnitude of each `span`; of equal ones the first. Biased.

    Zeros are never sent, and spans of zeros cost nothing. contraction = k/span, as that of `TopK`
    of one span is; a short last span does no worse. The selection of SparCML's Quantised TopK SGD
    (Renggli et al., SC 2019).
    """

    omega = float("inf")

    def __init__(
        self, dimension: int, k: int, span: int = 512, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, dtype=dtype)
        if not 1 <= k <= span:
            raise CompressError(f"k must be 1 to {span}, the elements of a span, not {k}")
        self.k = k
        self.span = span

    @property
    def contraction(self) -> float:
        return self.k / min(self.span, max(self.dimension, self.k))

    @property
    def most_elements(self) -> int:
        whole, rest = divmod(self.dimension, self.span)
        return whole * self.k + min(rest, self.k)

    def code_of_sum(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> Kept:
        kept = self._taken(x, y)
        # An element that is not finite is larger than all others, so it is kept.
        if first_not_finite(kept.values) < kept.values.size:
            check_finite(x, x)
        return kept

    def draw(self, x: NDArray[Any], draws: Draws) -> Kept:
        return self._taken(x, None)

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        return self._taken(x, None).choice

    def _taken(self, x: NDArray[Any], added: NDArray[Any] | None) -> Kept:
        marks = Marks.none(self.dimension)
        values = np.empty(self.most_elements, self.dtype)
        marks.count = _core.take_top_k_of_spans(x, added, self.span, self.k, marks.words, values)
        return Kept(Choice(marks), values[: marks.count])


class BlockTopK(TopK):
    """Sends the k of n blocks that have the largest l2 norm. Biased, contraction = k/n.

    Block Top-k of OmniReduce (Fei et al., SIGCOMM 2021).
    """

    def __init__(
        self, dimension: int, k: int, block: int = 256, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, k, block, dtype)

    def code_of_sum(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> Kept:
        norms = self.blocks.norms_of_sum(x, y)
        # A block with what is not finite has no finite norm.
        if first_not_finite(norms) < norms.size:
            check_finite(x, x)
        return self.keep(self._largest(norms), x)


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

    def _largest(self, sizes: NDArray[Any]) -> Choice:
        norms = np.abs(sizes).astype(np.float64)
        if not self._scales.any():
            return super()._largest(norms)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratios = norms / self._scales
        return super()._largest(np.where(norms > 0, ratios, 0.0))


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
        self.least_kept = self._least_kept()

    @property
    def error_bound(self) -> float:
        """An upper bound on ||C(x) - x||^2: each block dropped adds less than threshold^2."""
        return self.blocks.count * self.threshold**2

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        return Choice(Marks.reaching(self.blocks.sizes(x), self.least_kept))

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
