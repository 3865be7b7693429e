"""Compares the cost model of `sparsewire advise` with records of all_reduce, row by row.

python benchmarks/advise_costs.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import records

from sparsewire.tools.advise.prediction import transfers
from sparsewire.tools.advise.prediction.density import Overlap
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.network import Network

BYTES, BLOCK, CORES = 100_000_000, 256, 2
LOOPBACK_BITS_S = 1e15


@dataclass(frozen=True)
class Case:
    """A row of a record, and the network that it was measured on."""

    record: str
    row: str
    hosts: int
    ranks: int
    link_bits_s: float

    @property
    def network(self) -> Network:
        return Network(self.link_bits_s, self.hosts, self.ranks, CORES)

    def gradient(self) -> Gradient:
        """As dense as the row says: its name ends in the density."""
        density = float(self.row.rpartition("/")[2])
        scattered = self.record == "scattered"
        blocks = 1 - (1 - density) ** BLOCK if scattered else density
        growth = 0.0 if "same" in self.row else 1.0
        overlaps = (Overlap(Overlap.of(d, None, 1).one, growth) for d in (blocks, density))
        return Gradient(BYTES, 4, *overlaps, parameters=(BYTES // 4,))


@dataclass(frozen=True)
class Compared:
    """Predicted over measured, of gloo where that was measured, and of sparsewire."""

    case: Case
    gloo: float | None
    sparsewire: float


NETWORKS = {
    "colocated": (4, 1, 1e9),
    "scattered": (4, 1, 1e9),
    "slow-link": (4, 1, 1e8),
    "eight-hosts": (8, 1, 1e9),
    "hosts-1x4": (1, 4, LOOPBACK_BITS_S),
    "hosts-2x2": (2, 2, 1e9),
    "hosts-2x4": (2, 4, 1e9),
    "hosts-4x1": (4, 1, 1e9),
    "hosts-4x2": (4, 2, 1e9),
}


def compared() -> Iterator[Compared]:
    """All rows of these records."""
    found = records.load()
    for name, network in NETWORKS.items():
        for row, figures in found[name]["figures"].items():
            case = Case(name, row, *network)
            gradient = case.gradient()
            ours = transfers.engine(gradient, case.network).seconds
            theirs = transfers.ring(gradient, case.network).seconds
            gloo_s = figures.get("gloo_s")
            ratio = None if gloo_s is None else theirs / gloo_s
            yield Compared(case, ratio, ours / figures["sparsewire_s"])


def main() -> None:
    """Print a line for each."""
    for each in compared():
        gloo = "" if each.gloo is None else f"gloo {each.gloo:.2f}"
        print(f"{each.case.record:12} {each.case.row:22} {each.sparsewire:5.2f}  {gloo}")


if __name__ == "__main__":
    main()
