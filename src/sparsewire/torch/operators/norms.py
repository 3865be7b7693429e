"""Norms and means of blocks, with the order of sums of `core/kernels/loops/norm_loops.hpp`.

Sums are made in 16 lanes, in float64, one step after another. Each step is an operation of torch,
so the size of blocks is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sparsewire.compress.marks import Blocks
from sparsewire.torch.operators.floats import magnitude_bits, rows_of
from sparsewire.torch.operators.tensor_operator import number

_LANES = 16
_MOST_STEPS = 64
_LARGEST_POWER = 1024
"""Above this power, the norm is taken to be the largest magnitude."""

Step = Callable[[Tensor, Tensor], Tensor]


def has_norms(blocks: Blocks, power: float) -> bool:
    """Whether `norms` takes these blocks and this power."""
    return power > _LARGEST_POWER or (power in (1, 2) and has_sums(blocks))


def has_sums(blocks: Blocks) -> bool:
    """Whether blocks are small enough to be added up."""
    return blocks.size <= _LANES * _MOST_STEPS


def norms(x: Tensor, blocks: Blocks, power: float) -> Tensor:
    """The result of `Blocks.norms`, shape (blocks,), float32."""
    rows = rows_of(x, blocks.size)
    if math.isinf(power) or power > _LARGEST_POWER:
        return largest(rows)
    if power == 1:
        return _sums(rows, lambda sums, values: sums.add_(values.abs())).float()
    # Squares of float32 are exact in float64, so a fused sum has the same bits.
    return _sums(rows, lambda sums, values: sums.addcmul_(values, values)).sqrt_().float()


def means(x: Tensor, blocks: Blocks) -> Tensor:
    """The result of `Blocks.means`, shape (blocks,), float32."""
    rows = rows_of(x, blocks.size)
    sizes = torch.full((len(rows), 1), float(blocks.size), dtype=torch.float64, device=x.device)
    sizes[-1] = float(blocks.dimension - blocks.size * (blocks.count - 1))
    mean = _sums(rows, lambda sums, values: sums.add_(values.abs() / sizes))
    top = largest(rows)
    return torch.where(mean < top, mean.float(), top)


def largest(rows: Tensor) -> Tensor:
    """The largest magnitude of each row; NaN is larger than all numbers."""
    return magnitude_bits(rows).amax(1).view(torch.float32)


def _sums(rows: Tensor, add: Step) -> Tensor:
    lanes = rows_in_lanes(rows)
    sums = torch.zeros(len(rows), _LANES, dtype=torch.float64, device=rows.device)
    for step in range(lanes.shape[1]):
        sums = add(sums, lanes[:, step].double())
    total = number(0, sums).expand(len(rows)).clone()
    for lane in range(_LANES):
        total += sums[:, lane]
    return total


def rows_in_lanes(rows: Tensor) -> Tensor:
    """Rows in shape (rows, steps, lanes); zeros, which change no sum, fill up the last step."""
    missing = -rows.shape[1] % _LANES
    filled = torch.nn.functional.pad(rows, (0, missing)) if missing else rows
    return filled.view(len(rows), -1, _LANES)
