"""The all_reduce benchmark: a job's workers and aggregators on a cluster, and a report of them."""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.job import Job, Sample
from sparsewire.tools.bench.patterns import numpy_dtype
from sparsewire.tools.bench.result import CaseResult, Outcome, summarise, tables, time_by_density
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.crew import Crew, Process, module_argv
from sparsewire.tools.experiment.progress import Move, bars
from sparsewire.tools.experiment.report import Report
from sparsewire.tools.lab.aggregators import Aggregation
from sparsewire.tools.lab.site import UDP, XDP
from sparsewire.tools.measure.conditions import cpu_seconds
from sparsewire.tools.measure.wire_limit import Share

# The ranks meet where the crew says, also if a launcher started this command.
_NO_OTHER_PLACE = {"SPARSEWIRE_RENDEZVOUS": "", "TORCHELASTIC_USE_AGENT_STORE": ""}


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


def run_all_reduce(job: Job, cluster: Cluster, move: Move) -> list[CaseResult]:
    """Run all cases on the cluster's first hosts, aggregators on those after the ranks'.

    Raises WorkerFailed, with what the processes wrote, as soon as one of them fails, or finds that
    a result is wrong.
    """
    _check_arithmetic(job, cluster)
    with (
        tempfile.TemporaryDirectory(prefix="sparsewire-bench-") as folder,
        cluster.open() as site,
        Crew(site, Path(folder)) as crew,
    ):
        move("measuring", 0, len(job.cases), "starting the workers")
        environment = {**os.environ, **settings(job, cluster)}
        aggregation = Aggregation.of(site)
        environment.update(aggregation.settings(), SPARSEWIRE_SECRET=aggregation.secret)
        aggregators = crew.start_aggregators(aggregation, environment)
        argv = module_argv("sparsewire.tools.bench.worker", json.dumps(asdict(job)))
        crew.start_workers(argv, cluster.ranks, environment, aggregation.environment)
        outcomes = _outcomes(crew, aggregators, job, move)
    cases, item_bytes = zip(job.cases, outcomes, strict=True), numpy_dtype(job.dtype).itemsize
    return [summarise(case, outcome, cluster, item_bytes) for case, outcome in cases]


def settings(job: Job, cluster: Cluster) -> dict[str, str]:
    """Environment variables of all processes, beside those by which ranks find each other."""
    settings = {"OMP_NUM_THREADS": "1", **_NO_OTHER_PLACE}
    if job.arithmetic is not None:
        settings["SPARSEWIRE_ARITHMETIC"] = job.arithmetic
    if cluster.loss and not cluster.emulated:
        settings["SPARSEWIRE_DISTURB"] = f"loss={cluster.loss:g},seed={job.seed}"
    return settings


def _check_arithmetic(job: Job, cluster: Cluster) -> None:
    """Raise ExperimentError where what carries the tensors cannot add them so."""
    if job.in_fixed_point and cluster.transport not in (UDP, XDP):
        raise ExperimentError("--arithmetic fixed is for --transport udp or xdp")
    if cluster.transport == XDP and not job.in_fixed_point and job.dtype != "int32":
        raise ExperimentError("xdp adds whole numbers: use --arithmetic fixed, or --dtype int32")


def _outcomes(crew: Crew, aggregators: list[Process], job: Job, move: Move) -> list[Outcome]:
    """Collect what the workers tell until every one has ended well."""
    outcomes = [Outcome() for _ in job.cases]
    for rank, event in crew.events():
        number = event["case"]
        outcome = outcomes[number]
        if event["event"] == "measured":
            outcome.share = Share(*event["share"])
            for name, fields in event["samples"].items():
                outcome.samples.setdefault(name, []).append(Sample(**fields))
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
