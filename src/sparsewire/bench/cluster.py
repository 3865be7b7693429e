"""Where a benchmark runs: on this machine's loopback, or on emulated hosts of the lab."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from sparsewire.bench.result import Setup
from sparsewire.errors import ExperimentError
from sparsewire.lab import Lab, parse_link
from sparsewire.workers.site import Loopback, Site


@dataclass(frozen=True)
class Cluster:
    """Where to run: on loopback, or on one emulated host per rank and aggregator."""

    ranks: int
    aggregators: int = 0
    emulated: bool = False
    link: str | None = None

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ExperimentError(f"an all_reduce needs at least 2 ranks, not {self.ranks}")
        if self.link and not self.emulated:
            raise ExperimentError("--link shapes emulated hosts; give --hosts too")

    def setup(self, item_bytes: int) -> Setup:
        """What the results need to know about this cluster."""
        rate = parse_link(self.link) if self.link else None
        return Setup(self.ranks, self.aggregators, item_bytes, self.emulated, rate)

    def open(self) -> contextlib.AbstractContextManager[Site]:
        """The hosts, for as long as a `with` block lasts."""
        count = self.ranks + self.aggregators
        if self.emulated:
            return Lab(count, self.link)
        return contextlib.nullcontext(Loopback(count))

    def __str__(self) -> str:
        where = "emulated hosts" if self.emulated else "loopback"
        link = f" at {self.link}" if self.link else ""
        aggregators = f", {self.aggregators} dedicated aggregators" if self.aggregators else ""
        return f"{self.ranks} ranks on {where}{link}{aggregators}"
