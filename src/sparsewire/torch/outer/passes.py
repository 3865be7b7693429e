"""Passes over the vectors of outer optimizers, which measure what they write: in the native module
for vectors on the CPU, by torch's operations on other devices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparsewire._core import scale_in_place, subtract_into


def difference(
    start: Tensor, now: Tensor, out: Tensor, added: Tensor | None, beta: float
) -> tuple[float, float]:
    """out = start - now + beta * added; the norms of start - now and of `out`.

    Flat vectors, float32, contiguous.
    """
    if out.is_cpu:
        more = None if added is None else added.numpy()
        return subtract_into(start.numpy(), now.numpy(), more, beta, out.numpy())
    torch.sub(start, now, out=out)
    moved = norm(out)
    if added is None:
        return moved, moved
    out.add_(added, alpha=beta)
    return moved, norm(out)


def scale(vector: Tensor, factor: float) -> float:
    """Multiply a flat vector by a factor, in place; the norm of the result."""
    if vector.is_cpu:
        return scale_in_place(vector.numpy(), factor)
    return norm(vector.mul_(factor))


def norm(vector: Tensor) -> float:
    """The l2 norm of a flat vector."""
    return math.sqrt(float(torch.dot(vector, vector)))
