"""`sparsewire profile`: runs a training and records it, by variables that its processes find."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import typer

from sparsewire.cli.failure import exit_on_error, require
from sparsewire.profile.plan import DIRECTORY, Plan


def profile(
    command: list[str] = typer.Argument(
        ..., metavar="COMMAND...", help="The training, such as: torchrun train.py"
    ),
    output: Path = typer.Option(
        Path(DIRECTORY), help="Directory of the profile: rank-0.json, rank-1.json, ..."
    ),
    steps: int = typer.Option(50, help="Steps to record; then nothing is observed any more."),
    warmup: int = typer.Option(5, help="Steps to leave out before, 2 at least."),
    every: int | None = typer.Option(
        None, help="Look at densities every so many steps. Default: as often as costs little."
    ),
    trace: bool = typer.Option(
        False, "--trace", help="Save masks of some samples, too: rank-0.trace, ..."
    ),
) -> None:
    """Record how sparse a training's gradients are, and what its steps' time goes to.

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
        typer.secho(
            f"sparsewire profile: nothing was recorded in {output}: the command trained no "
            f"DistributedDataParallel for more than {warmup + 1} steps, or says above why. For "
            "another model, use sparsewire.torch.profile(model) in the script.",
            err=True,
            fg="yellow",
        )
    raise typer.Exit(status)


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """The status of a command that gets the signals of a terminal itself."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        typer.echo(f"error: cannot run {command[0]}: {error.strerror}", err=True)
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
