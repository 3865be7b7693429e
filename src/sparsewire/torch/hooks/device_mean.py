"""Means of the ranks' vectors of one parameter, made and used on the gradient's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparsewire.torch.hooks.gradient_mean import GradientMean
from sparsewire.torch.operators import TensorOperator
from sparsewire.torch.operators.tensor_operator import number


class Source(NamedTuple):
    """The data of one rank: the parts of a code, or without an operator the exact vector.

    `kept` is the operator's `kept_elements` of the code.
    """

    operator: TensorOperator[Any] | None
    parts: Sequence[Tensor]
    kept: int | None = None

    def add_to(self, total: Tensor, factor: float = 1.0) -> None:
        """Add `factor` times the vector to `total`, float32, on the same device."""
        if self.operator is not None:
            self.operator.add(self.parts, total, factor, self.kept)
        else:
            total += self.parts[0] if factor == 1 else self.parts[0] * factor


class DeviceMean(GradientMean):
    """Like `means.DenseMean`, on a device, shape (elements,). Nothing here waits for the device."""

    def __init__(self, sources: Sequence[Source], own: Source, like: Tensor) -> None:
        self._own = own
        self._vector = torch.zeros_like(like)
        for source in sources:
            source.add_to(self._vector)
        self._vector.div_(number(len(sources), like))

    def finite(self, dtype: torch.dtype) -> Tensor:
        """Whether all elements, rounded to `dtype`, are finite; a bool tensor on the device."""
        return self._vector.to(dtype).isfinite().all()

    def add(self, base: Tensor, out: Tensor) -> None:
        torch.add(base, self._vector, out=out)

    def move(self, vector: Tensor, rate: float) -> None:
        vector += self._vector.mul_(rate)

    def add_own(self, vector: Tensor, rate: float) -> None:
        self._own.add_to(vector, rate)

    def write(self, out: Tensor) -> None:
        out.copy_(self._vector)

    def feed_back(self, gradient: Tensor, residual: Tensor) -> None:
        residual.copy_(gradient)
        self._own.add_to(residual, -1.0)
        self.write(gradient)
