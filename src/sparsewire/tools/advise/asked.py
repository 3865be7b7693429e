"""The questions of a prediction, and their defaults."""

from __future__ import annotations

from collections.abc import Sequence

from sparsewire.profile.records.recorded import Recorded
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.lab.quantities import parse_speed

_DEFAULT_LINKS = ("1gbit", "10gbit", "100gbit")


def asked_network(recorded: Recorded, hosts: int | None, ranks: int, cores: int | None) -> Network:
    """A network of `hosts` with `ranks` each, 1 by default, without its link.

    By default there are as many hosts as the recorded ranks need.
    """
    per_host = ranks
    recorded_hosts = max(1, round(len(recorded.ranks) / per_host))
    return Network(1.0, hosts or recorded_hosts, per_host, cores)


def asked_links(recorded: Recorded, links: Sequence[str]) -> list[float]:
    """The links' speeds in bits per second; raises ValueError for what is no speed."""
    measured = recorded.ranks[0].link_bits_per_s
    if not links and measured:
        return [measured]
    return [float(parse_speed(link)) for link in links or _DEFAULT_LINKS]
