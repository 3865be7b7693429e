"""Passes over large vectors by tiles that stay in a cache, so that several operations on a tile
cost little more than one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

_TILE = 1 << 18
"""Elements: 1 MiB of float32, a few of which fit into a cache."""


def tiles(elements: int, device: torch.device) -> Iterator[slice]:
    """The tiles of vectors of this many elements; on other devices than the CPU, one."""
    size = _TILE if device.type == "cpu" else max(elements, 1)
    for begin in range(0, elements, size):
        yield slice(begin, min(begin + size, elements))


def difference(
    start: Tensor, now: Tensor, out: Tensor, added: Tensor | None, beta: float
) -> tuple[float, float]:
    """out = start - now + beta * added; the norms of start - now and of `out`. Flat vectors."""
    moved, turned = out.new_zeros(()), out.new_zeros(())
    for tile in tiles(out.numel(), out.device):
        part = torch.sub(start[tile], now[tile], out=out[tile])
        moved += torch.dot(part, part)
        if added is not None:
            part.add_(added[tile], alpha=beta)
            turned += torch.dot(part, part)
    size = math.sqrt(float(moved))
    return size, size if added is None else math.sqrt(float(turned))


def scale(vector: Tensor, factor: float) -> float:
    """Multiply a flat vector by a factor, in place; returns the norm of the result."""
    squares = vector.new_zeros(())
    for tile in tiles(vector.numel(), vector.device):
        part = vector[tile].mul_(factor) if factor != 1 else vector[tile]
        squares += torch.dot(part, part)
    return math.sqrt(float(squares))


def norm(vector: Tensor) -> float:
    """The l2 norm of a flat vector."""
    return math.sqrt(float(torch.dot(vector, vector)))
