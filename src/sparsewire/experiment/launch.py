"""Runs a program as all ranks of a site, and follows the events of rank 0."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsewire.experiment.crew import Crew
from sparsewire.experiment.events import Event
from sparsewire.lab.site import Loopback, Site

# Workers share the machine's cores, so one thread each. And they keep freed memory: otherwise each
# step of a training gives its large arrays back to the system, only to fault them in again.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}


def run_workers(
    site: Site, argv: Sequence[str], logs: Path, on_event: Callable[[Event], None]
) -> None:
    """Run `argv` on every host of the site until all have ended; pass on rank 0's events.

    Standard error goes to one file per rank in `logs`. Raises WorkerFailed, with what it wrote, as
    soon as a worker fails. No worker outlives the call.
    """
    with Crew(site, logs) as crew:
        crew.start_workers(argv, len(site.addresses), {**ENVIRONMENT, **os.environ})
        for rank, event in crew.events():
            if rank == 0:
                on_event(event)


def run_on_loopback(
    module: str, *arguments: str, ranks: int, on_event: Callable[[Event], None]
) -> None:
    """Run a module of this package as `ranks` ranks on loopback, as `run_workers` does."""
    with tempfile.TemporaryDirectory(prefix="sparsewire-workers-") as logs:
        run_workers(Loopback(ranks), module_argv(module, *arguments), Path(logs), on_event)


def module_argv(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this Python."""
    return [sys.executable, "-m", module, *arguments]
