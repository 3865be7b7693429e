"""Compares methods: all on one problem, from one start, until each is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparsewire import Communicator
from sparsewire.launcher import is_launched, join
from sparsewire.methods.method import Method
from sparsewire.methods.network import Distributed, Network, Simulated
from sparsewire.study.agreement import agree, check_alike
from sparsewire.study.candidate import Candidate, read_candidates
from sparsewire.study.data import load_problem
from sparsewire.study.experiment import Experiment, Limits, solution_of
from sparsewire.study.report import Report
from sparsewire.study.request import Request
from sparsewire.study.run import Follow, Run, run

ACCURACY = 1e-12
EPOCHS = 1000
ROUNDS = 20_000
"""Where a method ends unless the request says otherwise."""


def compare(request: Request, follow: Follow) -> Report | None:
    """Run the request's methods, on simulated workers or, under a launcher, one on each rank.

    The report is for rank 0 alone; the others get None. Raises OptimizeError, CompressError or
    DataError for what does not fit, MismatchError where ranks differ, and what the collectives
    raise. An error on one rank ends all.
    """
    # Spelling mistakes should not wait for data and a solution.
    candidates = read_candidates(request.methods, request.compressor)
    if not is_launched():
        return compare_simulated(request, candidates, follow)
    with join() as comm:
        try:
            report = _compare_distributed(comm, request, candidates, follow)
        except Exception as error:
            # The others may already wait for this rank.
            comm.abort(f"rank {comm.rank} failed: {error}")
            raise
    return report if comm.rank == 0 else None


def compare_simulated(request: Request, candidates: Sequence[Candidate], follow: Follow) -> Report:
    """All workers in this process."""
    problem = load_problem(request)
    experiment = Experiment(request, problem, solution_of(problem))
    return _compare(experiment, candidates, lambda: Simulated(problem.workers), follow)


def _compare_distributed(
    comm: Communicator, request: Request, candidates: Sequence[Candidate], follow: Follow
) -> Report:
    request = replace(request, workers=comm.world_size)
    problem = load_problem(request)
    check_alike(comm, request, problem)
    solution = agree(comm, problem, solution_of(problem))
    experiment = Experiment(request, problem, solution)
    told: Follow = follow if comm.rank == 0 else _ignore
    return _compare(experiment, candidates, lambda: Distributed(comm), told)


def _compare(
    experiment: Experiment,
    candidates: Sequence[Candidate],
    network: Callable[[], Network],
    follow: Follow,
) -> Report:
    request = experiment.request
    # All are built before the first is run, since building them finds what does not fit.
    methods = [c.build(experiment.problem, network(), request) for c in candidates]
    warnings = experiment.warnings([candidate.method for candidate in candidates])
    distance = (request.accuracy or ACCURACY) * experiment.first_distance
    limits = Limits(request.rounds or ROUNDS, request.epochs or EPOCHS, distance)
    runs = [
        run_candidate(candidate, method, experiment, limits, follow)
        for candidate, method in zip(candidates, methods, strict=True)
    ]
    return Report.of(experiment, warnings, runs, simulated=not is_launched())


def run_candidate(
    candidate: Candidate, method: Method, experiment: Experiment, limits: Limits, follow: Follow
) -> Run:
    """Run one method that `candidate` has built; collective."""
    ending, points = run(method, experiment, limits, lambda point: follow(candidate.label, point))
    omega = method.omega if method.compressors else math.inf
    return Run(
        label=candidate.label,
        method=candidate.method,
        compressor=candidate.compressor,
        omega=omega if math.isfinite(omega) else None,
        contraction=method.contraction if method.compressors else None,
        step_size=method.gamma,
        rate=method.rate,
        ending=ending,
        points=points,
    )


def _ignore(label: str, point: object) -> None:
    pass
