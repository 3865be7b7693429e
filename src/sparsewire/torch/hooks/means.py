"""Means of what the ranks sent of one parameter: of few elements, or dense."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparsewire._core import feed_marked_back, first_not_finite
from sparsewire.compress.marks import Blocks, Marked
from sparsewire.torch.hooks.scratch import Scratch
from sparsewire.torch.hooks.sent import Sent


class DenseMean:
    """A vector, float32 on the CPU, shape (elements,), good until the next one of the scratch."""

    def __init__(self, sent: Sequence[Sent], own: Sent, elements: int, scratch: Scratch) -> None:
        self._own = own
        self._vector = scratch.zeros(elements)
        for each in sent:
            each.add_to(self._vector)
        self._vector.div_(len(sent))

    def is_finite(self, dtype: torch.dtype) -> bool:
        """Whether all elements are, once they are rounded to `dtype`."""
        return _is_finite(self._vector, dtype)

    def add(self, base: torch.Tensor, out: torch.Tensor) -> None:
        """Write `base` plus the mean."""
        torch.add(base, self._vector, out=out)

    def move(self, vector: torch.Tensor, rate: float) -> None:
        """Add `rate` times the mean, which is gone then, to a vector."""
        # Product and sum apart: processors would differ in the last bit of a fused one.
        vector += self._vector.mul_(rate)

    def write(self, out: torch.Tensor) -> None:
        """Write the mean."""
        out.copy_(self._vector)

    def feed_back(self, gradient: torch.Tensor, residual: torch.Tensor) -> None:
        """Have what this rank did not send of a gradient as residual, and the mean as gradient."""
        residual.copy_(gradient)
        self._own.add_to(residual, -1.0)
        self.write(gradient)


class MarkedMean:
    """The same of vectors of few elements, which no pass is made over as a whole."""

    def __init__(self, sent: Sequence[Marked], own: Marked) -> None:
        self._own = own
        self._mean = Marked.mean(sent)

    def is_finite(self, dtype: torch.dtype) -> bool:
        return _is_finite(torch.from_numpy(self._mean.values), dtype)

    def add(self, base: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(base)
        self.move(out, 1.0)

    def move(self, vector: torch.Tensor, rate: float) -> None:
        marks, values = self._mean
        Blocks(vector.numel(), 1).add(values * values.dtype.type(rate), marks, vector.numpy())

    def write(self, out: torch.Tensor) -> None:
        self.add(torch.zeros(()), out)

    def feed_back(self, gradient: torch.Tensor, residual: torch.Tensor) -> None:
        sent, mean = self._own, self._mean
        own = sent.marks.words, sent.values
        feed_marked_back(gradient.numpy(), residual.numpy(), *own, mean.marks.words, mean.values)


Mean = DenseMean | MarkedMean


def mean_of(sent: Sequence[Sent], rank: int, elements: int, scratch: Scratch) -> Mean:
    """The mean of what the ranks sent, added in rank order; `rank` is this one.

    Raises CompressError where that is not finite of a code.
    """
    marked: list[Marked] = []
    for each in sent:
        part = each.marked()
        if part is None:
            return DenseMean(sent, sent[rank], elements, scratch)
        marked.append(part)
    return MarkedMean(marked, marked[rank])


def _is_finite(vector: torch.Tensor, dtype: torch.dtype) -> bool:
    rounded = vector.to(dtype).to(torch.float32)
    return first_not_finite(rounded.numpy()) == rounded.numel()
