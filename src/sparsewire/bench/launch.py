"""Runs a job's workers and aggregators, and gathers what came of each case."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sparsewire.bench.job import CaseReport, Job, Progress
from sparsewire.measure.usage import cpu_seconds
from sparsewire.workers.crew import Crew, Process
from sparsewire.workers.site import Site, free_ports

_AGGREGATOR = "from sparsewire.cli.main import app; app()"


@dataclass
class Outcome:
    """What came of one case: a report per rank, and the CPU time of all its aggregators."""

    reports: list[CaseReport] = field(default_factory=list)
    aggregator_cpu_s: float = 0.0


def run_job(
    job: Job,
    site: Site,
    ranks: int,
    aggregators: int,
    on_progress: Callable[[Progress], None],
) -> list[Outcome]:
    """Run a job on the first `ranks` hosts of the site, aggregators on the hosts after them.

    Returns one outcome per case. Raises WorkerFailed, with what the processes wrote, as soon as
    one of them fails.
    """
    with (
        tempfile.TemporaryDirectory(prefix="sparsewire-bench-") as folder,
        Crew(site, Path(folder)) as crew,
    ):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        # Those that the caller's environment may name are not part of this cluster.
        environment["SPARSEWIRE_AGGREGATORS"] = ""
        servers: list[Process] = []
        if aggregators:
            environment["SPARSEWIRE_SECRET"] = secrets.token_hex(16)
            binds = [
                f"{site.addresses[ranks + index]}:{port}"
                for index, port in enumerate(free_ports(aggregators))
            ]
            servers = _start_aggregators(crew, ranks, binds, environment)
            environment["SPARSEWIRE_AGGREGATORS"] = ",".join(binds)
        argv = [sys.executable, "-m", "sparsewire.bench.worker", job.to_json()]
        crew.start_workers(argv, ranks, environment)
        return _outcomes(crew, servers, len(job.cases), on_progress)


def _start_aggregators(
    crew: Crew, ranks: int, binds: list[str], environment: dict[str, str]
) -> list[Process]:
    argv = [sys.executable, "-c", _AGGREGATOR, "aggregator", "--bind"]
    return [
        crew.start_beside(f"aggregator{index}", ranks + index, [*argv, bind], environment)
        for index, bind in enumerate(binds)
    ]


def _outcomes(
    crew: Crew, aggregators: list[Process], cases: int, on_progress: Callable[[Progress], None]
) -> list[Outcome]:
    """Collect what the workers tell until every one has ended well."""
    outcomes = [Outcome() for _ in range(cases)]
    for rank, line in crew.lines():
        event = json.loads(line)
        if event.pop("event") == "report":
            outcome = outcomes[event["case"]]
            outcome.reports.append(CaseReport.from_fields(event))
            if rank == 0:
                outcome.aggregator_cpu_s += _cpu_s(aggregators)
        elif rank == 0:
            progress = Progress(**event)
            if not progress.done:
                outcomes[progress.case].aggregator_cpu_s -= _cpu_s(aggregators)
            on_progress(progress)
    return outcomes


def _cpu_s(processes: list[Process]) -> float:
    return sum(cpu_seconds(process.popen.pid) for process in processes)
