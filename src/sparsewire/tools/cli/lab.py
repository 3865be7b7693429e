"""`sparsewire lab`: runs a command for every rank on emulated hosts, with torchrun's variables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sparsewire.tools.cli import options
from sparsewire.tools.experiment.signals import ending_on

if TYPE_CHECKING:
    from sparsewire.tools.lab import Lab

COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("--hosts", type=click.IntRange(1, 200), default=4, help="Emulated hosts.")
@click.option("--ranks", type=click.IntRange(1, 64), default=1, help="Ranks on each of them.")
@click.option(
    "--link",
    default="1gbit",
    help="Speed of a link, both ways: 100mbit, 1gbit, 10gbit, ... or none.",
)
@options.emulated_network
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    help="Seconds that the other ranks are given once one has failed.",
)
@click.option(
    "--prefix/--no-prefix",
    default=True,
    help="Start every line of output with its host, or rank.",
)
def lab(
    command: tuple[str, ...],
    hosts: int,
    ranks: int,
    link: str,
    grace: float,
    prefix: bool,
    **network: Any,
) -> None:
    """Run COMMAND, such as `python train.py`, for every rank on emulated hosts on this machine.

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
    from sparsewire.tools.lab import Lab, LabError
    from sparsewire.tools.lab.run import run

    try:
        emulated = Lab(
            hosts, options.speed(link, "--link"), ranks=ranks, **options.network_of(network)
        )
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
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
    raise click.exceptions.Exit(status)


def _report(message: str) -> None:
    click.secho(f"sparsewire lab: {message}", err=True, bold=True)


def _writer(lab: Lab) -> Callable[[int, str, bool], None]:
    lock = threading.Lock()

    def write(place: int, line: str, is_error: bool) -> None:
        mark = click.style(f"[{lab.name(place)}]", fg=COLORS[place % len(COLORS)])
        with lock:
            click.echo(f"{mark} {line}", err=is_error)

    return write
