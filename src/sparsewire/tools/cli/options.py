"""The options that several commands share, and the network that those of the lab describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparsewire.tools.cli.failure import check_link

if TYPE_CHECKING:
    from sparsewire.tools.experiment.cluster import Cluster

Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)
Decorator = Callable[[Decorated], Decorated]

FILE = click.Path(path_type=Path)
COUNT = click.IntRange(1)
SEED = click.IntRange(0)

_DEFAULT_RANKS = 4


def together(*options: Decorator[Any]) -> Decorator[Any]:
    """One decorator for several options, which the help shows in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


json_file = click.option(
    "--json", "json_file", type=FILE, help="Write all numbers and conditions here."
)
seed_of_data = click.option("--seed", type=SEED, default=1, help="Seed of the data.")
call_timeout = click.option(
    "--timeout", type=click.FloatRange(1), default=300.0, help="Seconds that one call may take."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON instead.")


def plot_file(help: str) -> Decorator[Any]:
    """The option that names a picture."""
    return click.option("--plot", type=FILE, help=help)


def secret_file(help: str) -> Decorator[Any]:
    """The option that names the file of an aggregator's secret."""
    existing = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--secret-file", type=existing, help=help)


where = together(
    click.option("--hosts", type=COUNT, help="Emulated hosts (Linux, root). Default: loopback."),
    click.option("--link", help="Speed of each emulated host's link, like 1gbit."),
    click.option(
        "--ranks",
        type=COUNT,
        help=f"Ranks on loopback, {_DEFAULT_RANKS} by default, or on each emulated host, 1.",
    ),
)
"""Loopback or emulated hosts, for commands that measure."""

aggregators = click.option(
    "--aggregators",
    type=click.IntRange(0, 100),
    default=0,
    help="Dedicated aggregators, in the lab on hosts of their own; the ranks are told of them.",
)

emulated_network = together(
    click.option(
        "--links",
        type=click.IntRange(1, 8),
        default=1,
        help="Links of each emulated host, each to a network of its own: eth0, eth1, ... "
        "sparsewire uses all, gloo one at a time.",
    ),
    click.option(
        "--loss",
        help="Share of packets that each link drops, each way: 1% or 0.01. In the lab the packets "
        "of all backends are dropped, and each travels alone, also with 0. On loopback, sparsewire "
        "drops what --transport udp sends.",
    ),
    click.option(
        "--mtu",
        type=click.IntRange(576, 65535),
        help="Largest packet on the links of the lab, in bytes. Default: 1500.",
    ),
    aggregators,
    click.option(
        "--aggregator-link",
        help="Speed of the aggregators' links, or none for no limit. Default: that of --link.",
    ),
    click.option(
        "--transport",
        type=click.Choice(["tcp", "udp", "xdp"]),
        help="What carries tensors to aggregators: SPARSEWIRE_TRANSPORT. With udp or xdp there is "
        "one aggregator at least; xdp needs emulated hosts.",
    ),
    click.option(
        "--racks",
        type=COUNT,
        default=1,
        help="Racks that the emulated hosts stand in, in order, each with a switch; the "
        "aggregators are in the first.",
    ),
    click.option(
        "--trunk",
        help="Speed of the trunk from each further rack to the first, both ways. "
        "Default: no limit.",
    ),
    click.option(
        "--hierarchy",
        is_flag=True,
        help="Have an aggregator in each rack, below one for all, with --transport udp or xdp. "
        "Ranks find SPARSEWIRE_RACK in their environment, too.",
    ),
)
"""The options of the network between the lab's hosts; `network_of` reads them."""


def network_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Lab`, or of a `Cluster`, that the options of `emulated_network` describe.

    Raises ValueError for a loss that cannot be read. Speeds are left to the lab.
    """
    from sparsewire.tools.lab import parse_loss
    from sparsewire.tools.lab.aggregators import needed

    transport, racks, loss = given["transport"], given["racks"], given["loss"]
    racks_above = racks if given["hierarchy"] else 0
    return {
        "links": given["links"],
        "loss": None if loss is None else parse_loss(loss),
        "mtu": given["mtu"],
        "aggregators": needed(given["aggregators"], transport, racks_above),
        "aggregator_link": given["aggregator_link"],
        "transport": transport,
        "racks": racks,
        "trunk": None if given["trunk"] == "none" else given["trunk"],
        "levels": 2 if given["hierarchy"] else 1,
    }


def speed(link: str | None, option: str) -> str | None:
    """The link's speed as the lab reads it, and None for no limit, which "none" says as well."""
    return None if link in (None, "none") else check_link(link, option)


def cluster_of(hosts: int | None, ranks: int | None, link: str | None, **network: Any) -> Cluster:
    """The cluster that the options of `where` name; `network` are further fields of it."""
    from sparsewire.tools.experiment.cluster import Cluster

    if hosts is None:
        return Cluster(ranks or _DEFAULT_RANKS, link=link, **network)
    per_host = ranks or 1
    return Cluster(hosts * per_host, emulated=True, link=link, ranks_per_host=per_host, **network)


def named(names: str, known: Iterable[str], kind: str) -> list[str]:
    """The names in a list with commas between; raises ValueError for one that is not known."""
    found = names.split(",")
    for name in found:
        if name not in known:
            raise ValueError(f"{kind} {name!r} is not known: use {', '.join(known)}")
    return found
