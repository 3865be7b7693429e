"""Densities of one rank's gradient and of unions, among as many ranks as one asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_FULL = 1 - 1e-12


@dataclass(frozen=True)
class Overlap:
    """How the union grows with ranks: -log(1 - U(n)) is `one` n^`growth`.

    Growth is 1 where ranks are independent, and 0 where all have the same positions; words by
    Zipf's law are between, as Heaps' law has it. `full` is the share that every rank has in every
    step, such as dense layers that go with an embedding; the rest grows.
    """

    one: float
    growth: float
    full: float = 0.0

    @classmethod
    def of(cls, rank: float, union: float | None, ranks: int, full: float = 0.0) -> Overlap:
        """From the density of a rank and of a union of `ranks`; None: ranks are independent.

        `full` is at most the density of a rank.
        """
        full = min(full, rank)
        one = _depth((rank - full) / (1 - full)) if full < _FULL else 0.0
        if union is None or ranks < 2 or not one:
            return cls(one, 1.0, full)
        # A union has no more than all ranks together.
        joined = _depth(min(union - full, ranks * (rank - full)) / (1 - full))
        growth = math.log(max(joined / one, 1.0)) / math.log(ranks)
        return cls(one, growth, full)

    def of_density(self, density: float, full: float) -> Overlap:
        """The overlap of marks that grow as these do, with that density on one rank."""
        return Overlap(Overlap.of(density, None, 1, full).one, self.growth, min(full, density))

    def grown(self, by: float) -> Overlap:
        """Changes the growth, within 0 and 1: unions differ then, one rank does not."""
        return replace(self, growth=min(max(self.growth + by, 0.0), 1.0))

    def union(self, ranks: float) -> float:
        """The density of the union of so many."""
        return self.full + (1 - self.full) * -math.expm1(-self.one * ranks**self.growth)


def _depth(density: float) -> float:
    return -math.log1p(-min(density, _FULL))


def element_share(elements: float, item_bytes: int) -> float:
    """The share of a tensor's bytes that single elements need: behind a bitmap, or with 16 bits
    for each index, whichever is less."""
    return min(elements + 1 / (8 * item_bytes), elements * (1 + 2 / item_bytes))
