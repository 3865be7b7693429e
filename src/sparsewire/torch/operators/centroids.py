"""`Centroids` on tensors: the splits of all spans at once, with the sums of `core/compress`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from sparsewire.compress import Centroids
from sparsewire.torch.operators.floats import magnitude_bits, rows_of, vector_of
from sparsewire.torch.operators.levels import TensorLeveled
from sparsewire.torch.operators.tensor_operator import TensorCode, Values, is_not_finite


class Splits(NamedTuple):
    """Of each row, shape (rows, 1): the least large magnitude as bits, and the two means."""

    bounds: Tensor
    low: Tensor
    high: Tensor


class TensorCentroids(TensorLeveled[Centroids]):
    """`Centroids` on tensors; the scales have shape (spans, 2)."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        sizes = magnitude_bits(rows_of(x, self.operator.blocks.size))
        splits = _splits(sizes)
        levels = torch.where(sizes == 0, 0, 1 + (sizes >= splits.bounds).to(torch.int32))
        scales = torch.cat((splits.low, splits.high), 1)
        return TensorCode([scales, self._symbols(x, levels)], is_not_finite(x))

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        scales, symbols = parts
        levels = rows_of(symbols, self.operator.blocks.size).to(torch.int32) - 2
        sizes = torch.where(levels.abs() == 2, scales[:, 1:], scales[:, :1])
        values = torch.where(levels == 0, 0.0, torch.where(levels < 0, -sizes, sizes))
        return Values(None, vector_of(values, len(symbols)))


def _splits(sizes: Tensor) -> Splits:
    """The best splits of magnitudes, int32 bits in rows; zeros are of no class."""
    ordered = sizes.sort(dim=1, descending=True).values
    following = functional.pad(ordered[:, 1:], (0, 1))
    nonzero = (ordered > 0).sum(1, keepdim=True)
    sums = _sums_from_each(ordered.view(torch.float32).double())
    large = torch.arange(1, sizes.shape[1] + 1, device=sizes.device)
    small = (nonzero - large).clamp(min=1)
    low = functional.pad(sums[:, 1:], (0, 1))
    high = sums[:, :1] - low
    kept = torch.where(ordered > following, high * high / large + low * low / small, -1.0)
    # The first of the best; argmax may take any.
    is_best = kept == kept.amax(1, keepdim=True)
    best = torch.where(is_best, large, len(large)).amin(1, keepdim=True) - 1
    top = ordered[:, :1].view(torch.float32)

    def mean(sums: Tensor, counts: Tensor) -> Tensor:
        each = sums.gather(1, best) / counts
        return torch.where(each < top, each.float(), top)

    return Splits(
        ordered.gather(1, best), mean(low, small.gather(1, best)), mean(high, large[best])
    )


def _sums_from_each(values: Tensor) -> Tensor:
    """Of each row, the sum from each element on; their length doubles step by step."""
    step = 1
    while step < values.shape[1]:
        values = values + functional.pad(values[:, step:], (0, step))
        step *= 2
    return values
