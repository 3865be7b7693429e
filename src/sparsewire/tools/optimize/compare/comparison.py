"""Compares methods: all on one problem, from one start, until each is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sparsewire import Communicator
from sparsewire.errors import OptimizeError
from sparsewire.launcher import is_launched
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.optimize.compare.candidate import Candidate, read_candidates
from sparsewire.tools.optimize.compare.descent import descend
from sparsewire.tools.optimize.compare.report import Compared, Setting
from sparsewire.tools.optimize.compare.task import Comparison, Limits
from sparsewire.tools.optimize.compare.yardstick import Yardstick, solution_of
from sparsewire.tools.optimize.methods.network import Distributed, Simulated
from sparsewire.tools.optimize.problems.examples import by_index, by_label, shuffled
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats, Integers
from sparsewire.tools.optimize.task import MODELS, joined, load

LIMITS = Limits(accuracy=1e-12, rounds=20_000, epochs=1000)
"""The limits of a method unless the task states others."""


def compare(task: Comparison, move: Move) -> Compared | None:
    """Run the task's methods, on simulated workers or, under a launcher, one on each rank.

    The result is for rank 0 alone; the others get None. Raises OptimizeError, CompressError or
    DataError for what does not fit, MismatchError where ranks differ, and what the collectives
    raise. An error on one rank ends all.
    """
    # Spelling mistakes should not wait for data and a solution.
    candidates = read_candidates(task.methods, task.compressor)
    if not is_launched(os.environ):
        problem = load_problem(task)
        return _compare(Yardstick(task, problem, solution_of(problem)), candidates, None, move)
    with joined() as comm:
        task = replace(task, workers=comm.world_size)
        problem = load_problem(task, comm)
        yardstick = Yardstick(task, problem, agree(comm, problem, solution_of(problem)))
        told: Move = move if comm.rank == 0 else lambda *_, **__: None
        compared = _compare(yardstick, candidates, comm, told)
        return compared if comm.rank == 0 else None


def load_problem(task: Comparison, comm: Communicator | None = None) -> LinearModel:
    """The task's function, with equally many rows for each worker; the last are left out.

    Raises what `load` raises, and OptimizeError where there are too few rows.
    """
    examples = load(task, comm).examples
    parts = _divide(examples.labels, task)
    l2 = 1 / sum(map(len, parts)) if task.l2 is None else task.l2
    return MODELS[task.model](examples, parts, l2=l2, l1=task.l1)


def agree(comm: Communicator, problem: LinearModel, solution: Floats) -> Floats:
    """Give every rank the constants and the solution of rank 0, to the last bit; collective.

    Step sizes and endings follow from them, and linear algebra rounds differently from one
    processor to the next. Returns the solution.
    """
    constants = [problem.L, problem.L_max, problem.mu, *problem.L_i, *problem.mu_i]
    values = np.array([*constants, *solution])
    # The other ranks add 0, so the sum has the bits of rank 0.
    agreed = comm.all_reduce(values if comm.rank == 0 else np.zeros_like(values))
    problem.L, problem.L_max, problem.mu = agreed[:3].tolist()
    each = agreed[3 : len(constants)].tolist()
    problem.L_i, problem.mu_i = tuple(each[: problem.workers]), tuple(each[problem.workers :])
    return np.array(agreed[len(constants) :])


def _divide(labels: Floats, task: Comparison) -> list[Integers]:
    rows, workers = len(labels), task.workers
    if rows < workers:
        raise OptimizeError(f"{rows} rows cannot be divided among {workers} workers")
    if task.split == "label":
        return by_label(labels, workers, equal=True)
    if task.split == "index":
        return by_index(rows, workers, equal=True)
    return shuffled(rows, workers, task.seed, equal=True)


def _compare(
    yardstick: Yardstick, candidates: Sequence[Candidate], comm: Communicator | None, move: Move
) -> Compared:
    task, problem = yardstick.task, yardstick.problem
    network = Simulated(problem.workers) if comm is None else Distributed(comm)
    # All are built before the first is run, since building them finds what does not fit.
    methods = [candidate.build(problem, network, task) for candidate in candidates]
    warnings = yardstick.warnings([candidate.method for candidate in candidates])
    limits = Limits.of(task, LIMITS)
    runs = [
        descend(candidate, method, yardstick, limits, comm, move)
        for candidate, method in zip(candidates, methods, strict=True)
    ]
    return Compared(task, Setting.of(yardstick, limits, comm is None), warnings, runs)
