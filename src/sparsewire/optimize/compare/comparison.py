"""Compares methods: all on one problem, from one start, until each is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sparsewire import Communicator
from sparsewire.meeting.launcher import is_launched, join
from sparsewire.optimize.compare.agreement import agree, check_alike
from sparsewire.optimize.compare.candidate import Candidate, read_candidates
from sparsewire.optimize.compare.data import load_problem
from sparsewire.optimize.compare.experiment import Experiment, solution_of
from sparsewire.optimize.compare.limits import Limits
from sparsewire.optimize.compare.report import Report
from sparsewire.optimize.compare.request import Request
from sparsewire.optimize.compare.run import Follow, Run, run
from sparsewire.optimize.compare.transport import Transport
from sparsewire.optimize.methods.method import Method

LIMITS = Limits(accuracy=1e-12, rounds=20_000, epochs=1000)
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
    return _compare(experiment, candidates, Transport(problem.workers), follow)


def _compare_distributed(
    comm: Communicator, request: Request, candidates: Sequence[Candidate], follow: Follow
) -> Report:
    request = replace(request, workers=comm.world_size)
    problem = load_problem(request)
    check_alike(comm, request, problem)
    solution = agree(comm, problem, solution_of(problem))
    experiment = Experiment(request, problem, solution)
    told: Follow = follow if comm.rank == 0 else _ignore
    return _compare(experiment, candidates, Transport(comm.world_size, comm), told)


def _compare(
    experiment: Experiment,
    candidates: Sequence[Candidate],
    transport: Transport,
    follow: Follow,
) -> Report:
    request = experiment.request
    # All are built before the first is run, since building them finds what does not fit.
    methods = [c.build(experiment.problem, transport.network(), request) for c in candidates]
    warnings = experiment.warnings([candidate.method for candidate in candidates])
    limits = Limits.of(request, LIMITS)
    runs = [
        run_candidate(candidate, method, experiment, limits, transport, follow)
        for candidate, method in zip(candidates, methods, strict=True)
    ]
    return Report.of(experiment, limits, warnings, runs, simulated=transport.is_simulated)


def run_candidate(
    candidate: Candidate,
    method: Method,
    experiment: Experiment,
    limits: Limits,
    transport: Transport,
    follow: Follow,
) -> Run:
    """Run one method that `candidate` has built; collective."""
    (ending, points), wire_bytes = transport.counting(
        lambda: run(method, experiment, limits, lambda point: follow(candidate.label, point))
    )
    omega = method.omega if method.compressors else math.inf
    return Run(
        label=candidate.label,
        method=candidate.method,
        compressor=candidate.compressor,
        options=candidate.options,
        omega=omega if math.isfinite(omega) else None,
        contraction=method.contraction if method.compressors else None,
        step_size=method.gamma,
        rate=method.rate,
        ending=ending,
        points=points,
        wire_bytes=wire_bytes,
    )


def _ignore(label: str, point: object) -> None:
    pass
