"""The dedicated aggregators of a site: what runs where, and what ranks must know to find them."""

import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sparsewire.options import Address
from sparsewire.tools.lab.site import TCP, UDP, XDP, Site, free_ports

_COMMAND = (sys.executable, "-m", "sparsewire", "aggregator")


class Service(NamedTuple):
    """One aggregator: its host, its address, and its own parent if it has one."""

    place: int
    address: Address
    parent: Address | None


@dataclass(frozen=True)
class Aggregation:
    """The aggregators of one job on a site."""

    site: Site
    services: list[Service]
    secret: str

    @classmethod
    def of(cls, site: Site) -> "Aggregation":
        """An aggregator at each place of the site for them. Raises Error if no ports are free."""
        places = range(site.world_size, len(site.addresses))
        ports = free_ports(len(places))
        own = [
            Address(site.addresses[place], port) for place, port in zip(places, ports, strict=True)
        ]
        parents = [None, *own[:1] * (len(own) - 1)] if site.levels == 2 else [None] * len(own)
        services = [*map(Service, places, own, parents)]
        secret = os.environ.get("SPARSEWIRE_SECRET") or secrets.token_hex(16)
        return cls(site, services, secret)

    def commands(self) -> Iterator[tuple[int, list[str]]]:
        """The place and the command line of each aggregator."""
        for place, address, parent in self.services:
            above = [] if parent is None else ["--parent", str(parent)]
            yield place, [*_COMMAND, "--bind", str(address), *self._engine(parent), *above]

    def _engine(self, parent: Address | None) -> list[str]:
        transport = self.site.transport
        if transport == XDP and self.site.levels == 2 and parent is None:
            transport = UDP  # Of two levels, the kernel's is the lower one.
        if transport is None or transport == TCP:
            return []
        if transport != XDP:
            return ["--transport", transport]
        interface, *_ = self.site.interface.split(",")
        return ["--transport", transport, "--interface", interface]

    def environment(self, rank: int) -> dict[str, str]:
        """Environment variables of a rank, instead of those that it had."""
        found = ",".join(str(own.address) for own in self.services if self._serves(own, rank))
        own = {"SPARSEWIRE_AGGREGATORS": found, **self.settings()}
        if self.site.levels == 2:
            own["SPARSEWIRE_RACK"] = f"rack{self.site.rack_of(rank)}"
        return own

    def _serves(self, service: Service, rank: int) -> bool:
        site = self.site
        is_near = site.rack_of(service.place) == site.rack_of(rank)
        return site.levels == 1 or (service.parent is not None and is_near)

    def settings(self) -> dict[str, str]:
        """Settings that ranks and aggregators share."""
        told = {}
        if self.services:
            told["SPARSEWIRE_SECRET"] = self.secret
        if self.site.transport is not None:
            told["SPARSEWIRE_TRANSPORT"] = self.site.transport
        return told


def needed(aggregators: int, transport: str | None, racks: int = 0) -> int:
    """How many to start where so many are asked for: other transports than TCP need one.

    With an aggregator for each of so many `racks`, there is a root, too.
    """
    if racks:
        return racks + 1
    return aggregators or int(transport not in (None, TCP))
