"""The cluster of an experiment: this machine's loopback, or emulated hosts of the lab."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

from sparsewire.errors import ExperimentError
from sparsewire.tools.lab import UNLIMITED, Lab, limit_of, parse_link
from sparsewire.tools.lab.site import UDP, XDP, Loopback, Site


@dataclass(frozen=True)
class Cluster:
    """A cluster: loopback, or emulated hosts; aggregators have hosts of their own.

    Raises ExperimentError, or ValueError for a link's speed, for what makes no sense.
    """

    ranks: int
    aggregators: int = 0
    emulated: bool = False
    """Then every host has a network interface to itself, whose counters mean something."""
    link: str | None = None
    ranks_per_host: int = 1
    links: int = 1
    """Links of each emulated host, each at the speed of `link`."""
    aggregator_link: str | None = None
    """The link of aggregators' hosts; None: as those of the ranks, "none": without a limit."""
    transport: str | None = None
    """The transport of tensors to aggregators; None: that of the environment."""
    loss: float | None = None
    """Share of packets that is dropped on each link, each way: by the lab, or on loopback by the
    engine itself, which does it to datagrams only."""
    mtu: int | None = None
    """Largest packet on emulated hosts' links, in bytes; None: 1500."""
    racks: int = 1
    """Racks of the hosts, each with a switch."""
    trunk: str | None = None
    """Speed of what connects each further rack to the first; None: no limit."""
    levels: int = 1
    """Levels of aggregators; with 2, the first one is the root of one in each rack."""

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ExperimentError(f"a collective needs at least 2 ranks, not {self.ranks}")
        if not self.emulated:
            self._check_loopback()
        if self.ranks % self.ranks_per_host:
            raise ExperimentError(f"{self.ranks} ranks do not fill hosts of {self.ranks_per_host}")
        if self.trunk and self.racks == 1:
            raise ExperimentError("--trunk is between racks; give --racks too")
        if self.levels > 1 and self.transport not in (UDP, XDP):
            raise ExperimentError("--hierarchy needs --transport udp or xdp")
        for link in (self.link, self.aggregator_link, self.trunk):
            limit_of(link)

    def _check_loopback(self) -> None:
        of_hosts = {
            "--link shapes": self.link,
            "--links are of": self.links > 1,
            "--aggregator-link shapes": self.aggregator_link,
            "--mtu is of": self.mtu,
            "--racks are of": self.racks > 1,
            "--hierarchy is of": self.levels > 1,
            "--transport xdp needs the interfaces of": self.transport == XDP,
        }
        for option, given in of_hosts.items():
            if given:
                raise ExperimentError(f"{option} emulated hosts; give --hosts too")
        if self.loss is not None and self.transport != UDP:
            raise ExperimentError("--loss on loopback is of datagrams; give --hosts, or udp")

    def open(self) -> contextlib.AbstractContextManager[Site]:
        """The hosts, for as long as a `with` block lasts."""
        if not self.emulated:
            return contextlib.nullcontext(Loopback(self.ranks, self.aggregators, self.transport))
        return Lab(
            self.hosts,
            self.link,
            ranks=self.ranks_per_host,
            links=self.links,
            mtu=self.mtu,
            loss=self.loss,
            aggregators=self.aggregators,
            aggregator_link=self.aggregator_link,
            transport=self.transport,
            racks=self.racks,
            trunk=self.trunk,
            levels=self.levels,
        )

    @property
    def hosts(self) -> int:
        """The number of ranks' hosts."""
        return self.ranks // self.ranks_per_host

    @property
    def aggregator_links(self) -> float:
        """The links of all aggregators, counted in those of a rank's host."""
        if not (self.link and self.aggregator_link):
            return self.aggregators
        speed = limit_of(self.aggregator_link) or math.inf
        return self.aggregators * speed / parse_link(self.link)

    def seconds(self, bytes_per_host: float) -> float | None:
        """Seconds of a host's links for so many bytes; None if something else may take longer."""
        if not self.link or self.racks > 1:
            return None
        return bytes_per_host * 8 / (self.links * parse_link(self.link))

    @property
    def place(self) -> str:
        """The place of the ranks, in words."""
        where = "emulated hosts" if self.emulated else "loopback"
        if self.ranks_per_host > 1:
            where = f"{self.hosts} {where}"
        if self.link:
            where += f" at {self.link}" if self.links == 1 else f" at {self.links} x {self.link}"
        return where

    def __str__(self) -> str:
        return ", ".join([f"{self.ranks} ranks on {self.place}", *self._details()])

    def _details(self) -> Iterator[str]:
        if self.aggregators:
            plural = "s" if self.aggregators > 1 else ""
            through = f" over {self.transport}" if self.transport else ""
            is_limited = self.aggregator_link != UNLIMITED
            speed = f" at {self.aggregator_link}" if is_limited else " without a limit"
            link = speed if self.aggregator_link else ""
            yield f"{self.aggregators} dedicated aggregator{plural}{through}{link}"
        if self.racks > 1:
            below = " with an aggregator each below the first" if self.levels > 1 else ""
            joined = " and" if below and self.trunk else ""
            trunk = f"{joined} with a trunk of {self.trunk}" if self.trunk else ""
            yield f"{self.racks} racks{below}{trunk}"
        if self.mtu:
            yield f"MTU {self.mtu}"
        if self.loss is not None:
            yield f"{100 * self.loss:g}% loss"
