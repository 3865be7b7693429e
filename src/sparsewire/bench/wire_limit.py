"""The least time that links allow: payload bytes of the ideal algorithm over the link's rate."""

from dataclasses import dataclass

BLOCK = 256
"""Elements per block for which densities are measured: the engine's default block."""


@dataclass(frozen=True)
class Density:
    """Block densities of the actual data: the mean over ranks, and of the union of all ranks."""

    mean: float
    union: float


DENSE = Density(1.0, 1.0)


def colocated_bytes(payload: int, ranks: int, density: Density) -> float:
    """Bytes that each host sends, and receives, where every rank owns 1/n of the positions.

    It sends its non-zero blocks to the other owners and its share of the union to all others.
    """
    return (ranks - 1) / ranks * payload * (density.mean + density.union)


def dedicated_bytes(payload: int, ranks: int, aggregators: int, density: Density) -> float:
    """Bytes in the busiest direction of the busiest host: a worker's or an aggregator's."""
    worker = payload * max(density.mean, density.union)
    aggregator = ranks * payload * max(density.mean, density.union) / aggregators
    return max(worker, aggregator)


def sparse_bytes(payload: int, ranks: int, aggregators: int, density: Density) -> float:
    """Bytes per host direction of sparsewire's ideal, with or without dedicated aggregators."""
    if aggregators:
        return dedicated_bytes(payload, ranks, aggregators, density)
    return colocated_bytes(payload, ranks, density)


def ring_bytes(payload: int, ranks: int) -> float:
    """Bytes per host direction of a dense ring all_reduce, gloo's ideal: 2(n-1)/n of the data."""
    return colocated_bytes(payload, ranks, DENSE)
