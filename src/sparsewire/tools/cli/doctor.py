"""`sparsewire doctor`: what a machine, or all ranks of a job, have, and what is wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import exit_on_error

if TYPE_CHECKING:
    from sparsewire.tools.doctor.diagnosis import Diagnosis


@click.command()
@click.option(
    "--workers",
    type=click.IntRange(2, 64),
    help="Ranks to start here, on loopback. Default: this machine.",
)
@options.as_json
def doctor(workers: int | None, as_json: bool) -> None:
    """Look at this machine or, under a launcher, at all ranks, and say what is wrong.

    Ranks connect and measure the link: what a message, a byte and an element take, and which
    algorithm "auto" chooses by that. Under torchrun, mpirun, srun or `sparsewire lab`, rank 0
    prints. Torchrun needs --no-python, or it looks for a script of that name.

    Exit status, of rank 0: 1 where something keeps ranks from working.

    Examples: torchrun --standalone --no-python --nproc-per-node 2 sparsewire doctor

    mpirun -n 2 sparsewire doctor

    sparsewire lab --hosts 4 --link 1gbit -- sparsewire doctor
    """
    with exit_on_error():
        rank, diagnosis = _diagnose(workers)
    if rank == 0 and as_json:
        click.echo(diagnosis.to_json(indent=1))
    elif rank == 0:
        from sparsewire.tools.doctor.tables import print_diagnosis
        from sparsewire.tools.experiment.report import report_console

        print_diagnosis(report_console(), diagnosis)
    # A launcher ends all ranks once one fails, and rank 0 shall print before.
    if rank == 0 and any(finding.serious for finding in diagnosis.findings):
        raise click.exceptions.Exit(1)


def _diagnose(workers: int | None) -> tuple[int, Diagnosis]:
    from sparsewire.launcher import is_launched
    from sparsewire.tools.doctor.diagnosis import of_local_ranks, of_machine, of_ranks

    if is_launched(os.environ):
        if workers:
            raise ValueError("a launcher has started the ranks: leave --workers away")
        return of_ranks(os.environ)
    return 0, of_local_ranks(workers) if workers else of_machine(os.environ)
