"""Runs a job's workers and aggregators, and gathers what came of each case."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from sparsewire.bench.job import CaseReport, Job
from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.crew import Crew, Process
from sparsewire.experiment.launch import module_argv
from sparsewire.experiment.progress import Move
from sparsewire.experiment.site import Site, free_ports
from sparsewire.measure.usage import cpu_seconds

_AGGREGATOR = "from sparsewire.cli.main import app; app()"


@dataclass
class Outcome:
    """What came of one case: a report per rank, and the CPU time of all its aggregators."""

    reports: list[CaseReport] = field(default_factory=list)
    aggregator_cpu_s: float = 0.0


def run_job(job: Job, cluster: Cluster, move: Move) -> list[Outcome]:
    """Run a job on the cluster's first hosts, aggregators on the hosts after those of the ranks.

    Returns one outcome per case. Raises WorkerFailed, with what the processes wrote, as soon as
    one of them fails.
    """
    with (
        tempfile.TemporaryDirectory(prefix="sparsewire-bench-") as folder,
        cluster.open() as site,
        Crew(site, Path(folder)) as crew,
    ):
        # Those that the caller's environment may name are not part of this cluster.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SPARSEWIRE_AGGREGATORS": ""}
        aggregators = _start_aggregators(crew, site, cluster, environment)
        argv = module_argv("sparsewire.bench.worker", job.to_json())
        crew.start_workers(argv, cluster.ranks, environment)
        return _outcomes(crew, aggregators, job, move)


def _start_aggregators(
    crew: Crew, site: Site, cluster: Cluster, environment: dict[str, str]
) -> list[Process]:
    """Start those that the cluster has, and name them in the environment of the workers."""
    if not cluster.aggregators:
        return []
    hosts = range(cluster.ranks, cluster.ranks + cluster.aggregators)
    ports = free_ports(cluster.aggregators)
    binds = [f"{site.addresses[host]}:{port}" for host, port in zip(hosts, ports, strict=True)]
    environment["SPARSEWIRE_SECRET"] = secrets.token_hex(16)
    argv = [sys.executable, "-c", _AGGREGATOR, "aggregator", "--bind"]
    started = [
        crew.start_beside(f"aggregator{index}", host, [*argv, bind], environment)
        for index, (host, bind) in enumerate(zip(hosts, binds, strict=True))
    ]
    environment["SPARSEWIRE_AGGREGATORS"] = ",".join(binds)
    return started


def _outcomes(crew: Crew, aggregators: list[Process], job: Job, move: Move) -> list[Outcome]:
    """Collect what the workers tell until every one has ended well."""
    outcomes = [Outcome() for _ in job.cases]
    for rank, event in crew.events():
        number = event["case"]
        outcome = outcomes[number]
        if event.pop("event") == "report":
            outcome.reports.append(CaseReport.from_fields(event))
            if rank == 0:
                outcome.aggregator_cpu_s += _cpu_s(aggregators)
        elif rank == 0:
            if not event["done"]:
                outcome.aggregator_cpu_s -= _cpu_s(aggregators)
            # Cases count alike, whatever they take.
            done = number + event["done"] / event["total"]
            move("measuring", done, len(outcomes), str(job.cases[number]))
    return outcomes


def _cpu_s(processes: list[Process]) -> float:
    return sum(cpu_seconds(process.popen.pid) for process in processes)
