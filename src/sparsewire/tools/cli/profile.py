"""`sparsewire profile`: runs a training and records it, by variables that its processes find."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from sparsewire.profile.records.plan import DIRECTORY, Plan
from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.experiment.extras import require


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option(
    "--output",
    type=options.FILE,
    default=Path(DIRECTORY),
    help="Directory of the profile: rank-0.json, rank-1.json, ...",
)
@click.option(
    "--steps",
    type=int,
    default=50,
    help="Steps to record; then nothing is observed any more.",
)
@click.option("--warmup", type=int, default=5, help="Steps to leave out before, 2 at least.")
@click.option(
    "--every",
    type=int,
    help="Look at densities every so many steps. Default: as often as costs little.",
)
@click.option("--trace", is_flag=True, help="Save masks of some samples, too: rank-0.trace, ...")
def profile(
    command: tuple[str, ...],
    output: Path,
    steps: int,
    warmup: int,
    every: int | None,
    trace: bool,
) -> None:
    """Run COMMAND, a training, and record how sparse its gradients are and what its steps cost.

    It observes the first model that each process gives to DistributedDataParallel, on any backend.
    What it computes stays the same, bit for bit. Other models are recorded by a line in the script:
    sparsewire.torch.profile(model).

    Example: sparsewire profile -- torchrun --nproc-per-node 4 train.py

    Exit status: that of the command; 127 where it cannot be run.
    """
    with exit_on_error():
        require("torch", extra="torch")
        plan = Plan(output.absolute(), steps, warmup, every, trace)
    begin = time.time()
    status = _run(command, {**os.environ, **plan.settings()})
    if not _is_recorded(plan.directory, begin):
        click.secho(
            f"sparsewire profile: nothing was recorded in {output}: the command trained no "
            f"DistributedDataParallel for more than {warmup + 1} steps, or says above why. For "
            "another model, use sparsewire.torch.profile(model) in the script.",
            err=True,
            fg="yellow",
        )
    raise click.exceptions.Exit(status)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The status of a command that gets the signals of a terminal itself."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        click.echo(f"error: cannot run {command[0]}: {error.strerror}", err=True)
        return 127
    # Ctrl-C reaches the command by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    status = process.wait()
    return 128 - status if status < 0 else status


def _is_recorded(directory: Path, since: float) -> bool:
    """Whether any rank has written here since; on another host it may not be rank 0."""
    # File systems count coarser than clocks.
    return any(path.stat().st_mtime > since - 2 for path in directory.glob("rank-*.json"))
