"""Runs a program as all ranks of a site, and follows the events of rank 0."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparsewire.workers.crew import Crew
from sparsewire.workers.site import Site

# Workers share the machine's cores, so one thread each. And they keep freed memory: otherwise each
# step of a training gives its large arrays back to the system, only to fault them in again.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}

Event = dict[str, Any]


def run_workers(
    site: Site, argv: Sequence[str], logs: Path, on_event: Callable[[Event], None]
) -> None:
    """Run `argv` on every host of the site until all have ended; pass on rank 0's events.

    An event is a line of JSON on standard output. Standard error goes to one file per rank in
    `logs`. Raises WorkerFailed as soon as a worker fails. No worker outlives the call.
    """
    with Crew(site, logs) as crew:
        crew.start_workers(argv, len(site.addresses), {**ENVIRONMENT, **os.environ})
        for rank, line in crew.lines():
            if rank == 0:
                on_event(json.loads(line))
