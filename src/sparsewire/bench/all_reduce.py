"""The all_reduce benchmark as a whole: a job on a cluster gives results and a record of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from sparsewire.bench.cluster import Cluster
from sparsewire.bench.job import Job, Progress
from sparsewire.bench.launch import run_job
from sparsewire.bench.patterns import numpy_dtype
from sparsewire.bench.result import CaseResult, summarise
from sparsewire.measure.conditions import conditions


def run_all_reduce(
    job: Job, cluster: Cluster, on_progress: Callable[[Progress], None]
) -> list[CaseResult]:
    """Run all cases; raises WorkerFailed if a process fails or a result is wrong."""
    setup = cluster.setup(numpy_dtype(job.dtype).itemsize)
    with cluster.open() as site:
        outcomes = run_job(job, site, cluster.ranks, cluster.aggregators, on_progress)
    return [
        summarise(case, outcome, setup) for case, outcome in zip(job.cases, outcomes, strict=True)
    ]


def describe(job: Job, cluster: Cluster) -> str:
    """One line that says what was measured."""
    through = " through torch.distributed" if "sparsewire-torch" in job.backends else ""
    kind = f"sparse {job.dtype}" if job.input == "sparse" else job.dtype
    precision = f" sent as {job.precision}" if job.precision else ""
    return f"all_reduce {job.op} of {kind}{precision}{through}, {cluster}"


def write_record(file: Path, job: Job, cluster: Cluster, results: list[CaseResult]) -> None:
    """Write everything that is known about a run as JSON; times in seconds, sizes in bytes."""
    record = {
        "benchmark": "all_reduce",
        "cluster": asdict(cluster),
        "job": asdict(job),
        "conditions": conditions(),
        "results": [asdict(result) for result in results],
    }
    file.write_text(json.dumps(record, indent=1) + "\n")
