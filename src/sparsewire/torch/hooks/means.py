"""Means of the vectors that the ranks sent of one parameter: of few elements, or dense."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from sparsewire._core import feed_marked_back, first_not_finite
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.dithering import NormScaled
from sparsewire.compress.levels import Levels
from sparsewire.compress.marks import Marked
from sparsewire.compress.vectors import scaled_as
from sparsewire.torch.hooks.gradient_mean import GradientMean
from sparsewire.torch.hooks.sent import Coded, Sent


class Scratch(threading.local):
    """Memory for sums, kept from step to step: new pages would cost more than the sums themselves.

    It has one vector for each thread, as long as the longest request so far.
    """

    def __init__(self) -> None:
        self._vector = torch.empty(0, device="cpu")

    def zeros(self, elements: int) -> torch.Tensor:
        """Float32 zeros on the CPU, shape (elements,), valid until this thread's next call."""
        if self._vector.numel() < elements:
            self._vector = torch.empty(elements, dtype=torch.float32, device="cpu")
        return self._vector[:elements].zero_()


class DenseMean(GradientMean):
    """A vector, float32 on the CPU, shape (elements,), valid until the next use of the scratch.

    The first use of the mean raises CompressError if the vector of a code is not finite.
    """

    def __init__(self, sent: Sequence[Sent], own: Sent, elements: int, scratch: Scratch) -> None:
        self._own, self._sent = own, sent
        self._elements, self._scratch = elements, scratch

    @cached_property
    def _vector(self) -> torch.Tensor:
        """The mean; made on demand, since it may not be needed as a whole, and made only once."""
        vector = self._scratch.zeros(self._elements)
        for each in self._sent:
            each.add_to(vector)
        return vector.div_(len(self._sent))

    def is_finite(self, dtype: torch.dtype) -> bool:
        """Whether all elements, rounded to `dtype`, are finite."""
        return _is_finite(self._vector.numpy(), dtype)

    def add(self, base: torch.Tensor, out: torch.Tensor) -> None:
        torch.add(base, self._vector, out=out)

    def move(self, vector: torch.Tensor, rate: float) -> None:
        # Product and sum are separate: fused ones differ between processors in the last bit.
        vector += self._vector.mul_(rate)

    def add_own(self, vector: torch.Tensor, rate: float) -> None:
        self._own.add_to(vector, rate)

    def write(self, out: torch.Tensor) -> None:
        out.copy_(self._vector)

    def feed_back(self, gradient: torch.Tensor, residual: torch.Tensor) -> None:
        residual.copy_(gradient)
        self._own.add_to(residual, -1.0)
        self.write(gradient)


class LevelsMean(DenseMean):
    """A `DenseMean` of codes with norms and levels; DIANA's step takes one pass over them."""

    def __init__(self, sent: Sequence[Coded], rank: int, elements: int, scratch: Scratch) -> None:
        super().__init__(sent, sent[rank], elements, scratch)
        self._operator: NormScaled = sent[rank].operator  # type: ignore[assignment]
        self._codes: list[Levels] = [each.code for each in sent]
        self._rank = rank

    def is_finite(self, dtype: torch.dtype) -> bool:
        # No value exceeds its norm, and a factor of 2 covers the error of rounding sums.
        most = sum(float(code.scales.max()) for code in self._codes)
        return 2 * most < torch.finfo(dtype).max or super().is_finite(dtype)

    def follow(
        self, shift: torch.Tensor, mean_shift: torch.Tensor, gradient: torch.Tensor, rate: float
    ) -> None:
        places = (each.numpy() for each in (shift, mean_shift, gradient))
        self._operator.follow_codes(self._codes, self._rank, rate, *places)


class MarkedMean(GradientMean):
    """The mean of vectors with few blocks, made without a pass over whole vectors."""

    def __init__(self, sent: Sequence[Marked], own: Marked) -> None:
        self._own = own
        self._mean = Marked.mean(sent)

    def is_finite(self, dtype: torch.dtype) -> bool:
        return _is_finite(self._mean.values, dtype)

    def add(self, base: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(base)
        self.move(out, 1.0)

    def move(self, vector: torch.Tensor, rate: float) -> None:
        _add(self._mean, vector, rate)

    def add_own(self, vector: torch.Tensor, rate: float) -> None:
        _add(self._own, vector, rate)

    def write(self, out: torch.Tensor) -> None:
        self.add(torch.zeros((), device="cpu"), out)

    def feed_back(self, gradient: torch.Tensor, residual: torch.Tensor) -> None:
        sent, mean = self._own, self._mean
        own = sent.blocks.size, sent.marks.words, sent.values
        feed_marked_back(gradient.numpy(), residual.numpy(), *own, mean.marks.words, mean.values)


def mean_of(
    sent: Sequence[Sent], rank: int, elements: int, scratch: Scratch
) -> DenseMean | MarkedMean:
    """The mean of the vectors that the ranks sent, added in rank order; `rank` is this rank.

    CompressError for a code whose vector is not finite is raised here, or by `is_finite`.
    """
    if all(isinstance(each, Coded) and _has_levels(each.operator) for each in sent):
        return LevelsMean(cast(Sequence[Coded], sent), rank, elements, scratch)
    marked: list[Marked] = []
    for each in sent:
        part = each.marked()
        if part is None or (marked and part.blocks.size != marked[0].blocks.size):
            return DenseMean(sent, sent[rank], elements, scratch)
        marked.append(part)
    return MarkedMean(marked, marked[rank])


def _has_levels(operator: Compressor) -> bool:
    return isinstance(operator, NormScaled) and operator.dtype == np.float32


def _add(marked: Marked, vector: torch.Tensor, rate: float) -> None:
    values = scaled_as(marked.values, marked.values.dtype, rate)
    with np.errstate(over="ignore"):
        marked.blocks.add(values, marked.marks, vector.numpy())


def _is_finite(values: NDArray[np.float32], dtype: torch.dtype) -> bool:
    if dtype is not torch.float32:
        values = torch.from_numpy(values).to(dtype).to(torch.float32).numpy()
    return first_not_finite(values) == values.size
