"""float32 as its bits, and vectors as rows of blocks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

MANTISSA = 23
BIAS = 127
LARGEST = torch.finfo(torch.float32).max
SMALLEST_NORMAL = torch.finfo(torch.float32).smallest_normal


def magnitude_bits(x: Tensor) -> Tensor:
    """The magnitudes as int32, which are ordered like the numbers; NaN comes last."""
    return x.view(torch.int32) & 0x7FFFFFFF


def is_negative(x: Tensor) -> Tensor:
    """1 where the sign bit is set, also of zero, else 0; int32."""
    return (x.view(torch.int32) >> 31) & 1


def power_of_two(exponents: Tensor) -> Tensor:
    """Exact powers of two, float32, with int32 exponents from -126 to 127."""
    return ((exponents + BIAS) << MANTISSA).view(torch.float32)


def rows_of(x: Tensor, size: int) -> Tensor:
    """The blocks of a vector, shape (blocks, size); zeros fill up the last block."""
    missing = -len(x) % size
    return (functional.pad(x, (0, missing)) if missing else x).view(-1, size)


def vector_of(rows: Tensor, elements: int) -> Tensor:
    """The vector that `rows_of` cut into these rows, shape (elements,)."""
    return rows.flatten()[:elements]
