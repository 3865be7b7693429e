"""Where an experiment runs: on this machine's loopback, or on emulated hosts of the lab."""

import contextlib
from dataclasses import dataclass

from sparsewire.errors import ExperimentError
from sparsewire.lab import Lab, parse_link
from sparsewire.lab.site import Loopback, Site


@dataclass(frozen=True)
class Cluster:
    """Where to run: on loopback, or on emulated hosts, which aggregators have to themselves.

    Raises ExperimentError, or ValueError for a link's speed, for what makes no sense.
    """

    ranks: int
    aggregators: int = 0
    emulated: bool = False
    """Then every host has a network interface to itself, whose counters mean something."""
    link: str | None = None
    ranks_per_host: int = 1
    links: int = 1
    """Of each emulated host, each at the speed of `link`."""
    aggregator_link: str | None = None
    """Of the aggregators' hosts; None: as those of the ranks."""

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ExperimentError(f"a collective needs at least 2 ranks, not {self.ranks}")
        if (self.link or self.links > 1) and not self.emulated:
            option = "--link shapes" if self.link else "--links are of"
            raise ExperimentError(f"{option} emulated hosts; give --hosts too")
        if self.ranks % self.ranks_per_host:
            raise ExperimentError(f"{self.ranks} ranks do not fill hosts of {self.ranks_per_host}")
        if self.link:
            parse_link(self.link)

    def open(self) -> contextlib.AbstractContextManager[Site]:
        """The hosts, for as long as a `with` block lasts."""
        if not self.emulated:
            return contextlib.nullcontext(Loopback(self.ranks, self.aggregators))
        return Lab(
            self.hosts,
            self.link,
            ranks=self.ranks_per_host,
            links=self.links,
            aggregators=self.aggregators,
            aggregator_link=self.aggregator_link or self.link,
        )

    @property
    def hosts(self) -> int:
        """Those of ranks."""
        return self.ranks // self.ranks_per_host

    def seconds(self, bytes_per_host: float) -> float | None:
        """What a host's links take for so many bytes; None where their speed is unknown."""
        return bytes_per_host * 8 / (self.links * parse_link(self.link)) if self.link else None

    @property
    def place(self) -> str:
        """Where the ranks are, in words."""
        where = "emulated hosts" if self.emulated else "loopback"
        if self.ranks_per_host > 1:
            where = f"{self.hosts} {where}"
        if self.link:
            where += f" at {self.link}" if self.links == 1 else f" at {self.links} x {self.link}"
        return where

    def __str__(self) -> str:
        aggregators = f", {self.aggregators} dedicated aggregators" if self.aggregators else ""
        return f"{self.ranks} ranks on {self.place}{aggregators}"
