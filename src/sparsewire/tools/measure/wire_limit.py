"""The least time that links allow: payload bytes of the ideal algorithm over the link's rate.

They follow from how much of the vectors is not zero, by element and by block.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 256
"""Elements per block for which densities are measured: the engine's default block."""


@dataclass(frozen=True)
class Share:
    """Shares of the tensor's bytes that its non-zeros need: the mean over ranks, and the union."""

    mean: float
    union: float


DENSE = Share(1.0, 1.0)


def share(block_density: float, element_density: float, item_bits: int) -> float:
    """The least share of bytes: whole blocks, or elements whose positions take their entropy."""
    rest = 1 - element_density
    entropy = -sum(p * math.log2(p) for p in (element_density, rest) if p > 0)
    return min(block_density, element_density + entropy / item_bits)


def densities(vectors: Iterable[npt.NDArray[Any]]) -> dict[str, float]:
    """The share of each "element" and each "block" of all vectors together that is not zero.

    Each vector begins a new block.
    """
    found = [(vector != 0, nonzero_blocks(vector)) for vector in vectors]
    elements, blocks = (np.concatenate(marks) for marks in zip(*found, strict=True))
    return {"element": float(elements.mean()), "block": float(blocks.mean())}


def nonzero_blocks(vector: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Marks of the blocks of `BLOCK` elements that hold a non-zero; the last may be shorter."""
    return np.logical_or.reduceat(vector != 0, np.arange(0, len(vector), BLOCK))


def colocated_bytes(payload: float, ranks: int, share: Share) -> float:
    """Bytes that each host sends, and receives, where every rank owns 1/n of the positions.

    It sends its non-zero blocks to the other owners and its share of the union to all others.
    """
    return (ranks - 1) / ranks * payload * (share.mean + share.union)


def sparse_bytes(payload: int, ranks: int, aggregators: float, share: Share) -> float:
    """Bytes per host direction of sparsewire's ideal.

    With dedicated aggregators, that of the busiest host: a worker or an aggregator. One whose link
    is twice as fast as the others counts as two.
    """
    if aggregators:
        return max(1, ranks / aggregators) * payload * max(share.mean, share.union)
    return colocated_bytes(payload, ranks, share)


def coo_gather_bytes(named: int, item_bytes: int, ranks: int) -> int:
    """Bytes that a rank sends where each gives all others its 64-bit positions and values."""
    return (ranks - 1) * named * (8 + item_bytes)


def ring_bytes(payload: int, ranks: int) -> float:
    """Bytes per host direction of a dense ring all_reduce, gloo's ideal: 2(n-1)/n of the data."""
    return colocated_bytes(payload, ranks, DENSE)
