"""`sparsewire lab`: runs a command for every rank on emulated hosts, with torchrun's variables."""

import signal
import threading
from collections.abc import Callable

import typer

from sparsewire.cli.failure import check_link
from sparsewire.experiment.signals import ending_on

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
    mtu: int = typer.Option(1500, min=576, max=65535, help="Largest packet, in bytes."),
    grace: float = typer.Option(
        30.0, min=0.0, help="Seconds that the other ranks are given once one has failed."
    ),
    prefix: bool = typer.Option(True, help="Start every line of output with its host, or rank."),
) -> None:
    """Run a command for every rank on emulated hosts, on this machine.

    The hosts are network namespaces, joined by links of the given speed to one switch. They reach
    each other (as host0, host1, ...) and nothing else: download data sets before. Each has as many
    ranks as you ask for, with the variables that torchrun sets. Needs Linux and root.

    Example: sparsewire lab --hosts 2 --ranks 4 --link 1gbit -- python train.py

    Exit status: that of the first rank to fail, or 0; 2 where no lab is possible.
    """
    from sparsewire.lab import Lab, LabError
    from sparsewire.lab.run import run

    speed = None if link == "none" else check_link(link)
    try:
        with ending_on(*_SIGNALS), Lab(hosts, speed, ranks=ranks, links=links, mtu=mtu) as emulated:
            emit = _writer(emulated.unit) if prefix else None
            status = run(emulated, command, grace=grace, tell=_report, emit=emit)
    except LabError as error:
        _report(str(error))
        status = 2
    except OSError as error:
        _report(f"cannot run {command[0]}: {error.strerror}")
        status = 127
    raise typer.Exit(status)


def _report(message: str) -> None:
    typer.secho(f"sparsewire lab: {message}", err=True, bold=True)


def _writer(unit: str) -> Callable[[int, str, bool], None]:
    lock = threading.Lock()

    def write(rank: int, line: str, is_error: bool) -> None:
        mark = typer.style(f"[{unit} {rank}]", fg=COLORS[rank % len(COLORS)])
        with lock:
            typer.echo(f"{mark} {line}", err=is_error)

    return write
