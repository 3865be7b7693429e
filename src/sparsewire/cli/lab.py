"""`sparsewire lab`: runs a command for every rank on emulated hosts, with torchrun's variables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import typer

from sparsewire.cli.failure import check_link
from sparsewire.experiment.signals import ending_on

if TYPE_CHECKING:
    from sparsewire.lab import Lab

Transport = Literal["tcp", "udp", "xdp"]

COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def lab(
    command: list[str] = typer.Argument(
        ..., metavar="COMMAND...", help="What every rank runs, such as: python train.py"
    ),
    hosts: int = typer.Option(4, min=1, max=200, help="Emulated hosts."),
    ranks: int = typer.Option(1, min=1, max=64, help="Ranks on each of them."),
    link: str = typer.Option(
        "1gbit", help="Speed of a link, both ways: 100mbit, 1gbit, 10gbit, ... or none."
    ),
    links: int = typer.Option(
        1, min=1, max=8, help="Links of each host, each to a network of its own: eth0, eth1, ..."
    ),
    loss: str | None = typer.Option(
        None,
        help="Share of packets that each link drops, each way: 1% or 0.01. With 0, none is "
        "dropped, but each travels alone, as with any other loss.",
    ),
    mtu: int = typer.Option(1500, min=576, max=65535, help="Largest packet, in bytes."),
    aggregators: int = typer.Option(
        0,
        min=0,
        max=100,
        help="Further hosts, each with a `sparsewire aggregator`, which the ranks are told of.",
    ),
    aggregator_link: str | None = typer.Option(
        None, help="Speed of their links. Default: that of the other links."
    ),
    transport: Transport | None = typer.Option(
        None,
        help="What carries tensors to the aggregators; with udp or xdp there is one at least.",
    ),
    racks: int = typer.Option(
        1,
        min=1,
        help="Racks that the hosts stand in, in order, each with a switch. Aggregators are in the "
        "first.",
    ),
    trunk: str = typer.Option(
        "none", help="Speed of the trunk from each further rack to the first, both ways."
    ),
    hierarchy: bool = typer.Option(
        False,
        "--hierarchy",
        help="An aggregator in each rack, below one for all, with --transport udp or xdp. Ranks "
        "find SPARSEWIRE_RACK in their environment, too.",
    ),
    grace: float = typer.Option(
        30.0, min=0.0, help="Seconds that the other ranks are given once one has failed."
    ),
    prefix: bool = typer.Option(True, help="Start every line of output with its host, or rank."),
) -> None:
    """Run a command for every rank on emulated hosts, on this machine.

    The hosts are network namespaces, joined by links of the given speed to one switch. They reach
    each other (as host0, host1, ...) and nothing else: download data sets before. Each has as many
    ranks as you ask for, with the variables that torchrun sets. Needs Linux and root.

    Losses are real: nftables drops what arrives at either end of a link, at random, without a
    seed. No device then takes several packets as one (TSO, UDP segmentation, GRO), so that a drop
    is one packet, as on a wire. This costs processor time, also with --loss 0: compare with that.

    The link of an aggregator's host is shaped a hop away from it: what a program in XDP sends
    passes by the shaper of its own interface. Ranks find SPARSEWIRE_AGGREGATORS and
    SPARSEWIRE_SECRET in their environment, and SPARSEWIRE_TRANSPORT where --transport is given.

    Example: sparsewire lab --hosts 2 --ranks 4 --link 1gbit -- python train.py

    Exit status: that of the first rank or aggregator to fail, or 0; 2 where no lab is possible.
    """
    from sparsewire.lab import Lab, LabError, parse_loss
    from sparsewire.lab.aggregators import needed
    from sparsewire.lab.run import run

    try:
        emulated = Lab(
            hosts,
            _speed(link),
            ranks=ranks,
            links=links,
            mtu=mtu,
            loss=None if loss is None else parse_loss(loss),
            aggregators=needed(aggregators, transport, racks if hierarchy else 0),
            aggregator_link=_speed(aggregator_link or link, "--aggregator-link"),
            transport=transport,
            racks=racks,
            trunk=_speed(trunk, "--trunk"),
            levels=2 if hierarchy else 1,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    emit = _writer(emulated) if prefix else None
    try:
        with ending_on(*_SIGNALS), emulated:
            status = run(emulated, command, grace=grace, tell=_report, emit=emit)
    except LabError as error:
        _report(str(error))
        status = 2
    except OSError as error:
        _report(f"cannot run {command[0]}: {error.strerror}")
        status = 127
    raise typer.Exit(status)


def _speed(link: str, option: str = "--link") -> str | None:
    return None if link == "none" else check_link(link, option)


def _report(message: str) -> None:
    typer.secho(f"sparsewire lab: {message}", err=True, bold=True)


def _writer(lab: Lab) -> Callable[[int, str, bool], None]:
    lock = threading.Lock()

    def write(place: int, line: str, is_error: bool) -> None:
        mark = typer.style(f"[{lab.name(place)}]", fg=COLORS[place % len(COLORS)])
        with lock:
            typer.echo(f"{mark} {line}", err=is_error)

    return write
