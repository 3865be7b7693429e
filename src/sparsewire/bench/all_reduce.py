"""The all_reduce benchmark as a whole: a job on a cluster gives results and a report of them."""

from __future__ import annotations

from dataclasses import asdict

from sparsewire.bench.job import Job
from sparsewire.bench.launch import run_job
from sparsewire.bench.patterns import numpy_dtype
from sparsewire.bench.plot import time_by_density
from sparsewire.bench.result import CaseResult, summarise
from sparsewire.bench.table import tables
from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.progress import Move, bars
from sparsewire.experiment.report import Report


def run_all_reduce(job: Job, cluster: Cluster, move: Move) -> list[CaseResult]:
    """Run all cases; raises WorkerFailed if a process fails or a result is wrong."""
    item_bytes = numpy_dtype(job.dtype).itemsize
    return [
        summarise(case, outcome, cluster, item_bytes)
        for case, outcome in zip(job.cases, run_job(job, cluster, move), strict=True)
    ]


def all_reduce_report(job: Job, cluster: Cluster) -> Report:
    """Run all cases, with a progress bar; raises what `run_all_reduce` does."""
    with bars() as move:
        results = run_all_reduce(job, cluster, move)
    record = {
        "benchmark": "all_reduce",
        "cluster": asdict(cluster),
        "job": asdict(job),
        "results": [asdict(result) for result in results],
    }
    title = f"{job}, {cluster}"
    return Report([title, *tables(results)], record, lambda: time_by_density(results, title))
