"""The yardstick of all methods of a comparison: the problem, its solution, the link."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sparsewire.errors import OptimizeError
from sparsewire.tools.optimize.compare.registry import Needs, entry
from sparsewire.tools.optimize.compare.task import Comparison
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats
from sparsewire.tools.optimize.problems.reference import solve

_MOST_FEATURES = 5000
"""The reference solution takes a dense matrix of their square."""
_VANISHES = 1e-12
"""Squared gradients at the solution below this share of those at the start count as zero."""


class Decay:
    """The curvature at the solution x*, and how far the start, 0, is from it in each direction.

    A step along unbiased estimates of the gradient changes x - x* by I - gamma H in expectation,
    where H is the second derivative: exactly for least squares, and close to x* for other smooth f.
    So each eigenvector's part of |x - x*|^2 shrinks by (1 - gamma lambda)^2. Theorems must assume
    that all of it lies where this is slowest.
    """

    def __init__(self, problem: LinearModel, solution: Floats) -> None:
        # Zeros that an l1 term makes are at 0 from the start.
        moving = np.flatnonzero(solution) if problem.l1 else np.arange(problem.dimension)
        hessian = problem.hessian(solution)[np.ix_(moving, moving)]
        self._curvatures, directions = np.linalg.eigh(hessian)
        parts: Floats = np.square(directions.T @ solution[moving])
        self._shares = parts / parts.sum()

    def remaining(self, rounds: int, step: float) -> float:
        """The share of |x - x*|^2 that is left after so many steps of this size."""
        return float(self._shares @ (1 - step * self._curvatures) ** (2 * rounds))

    def rounds(self, accuracy: float, step: float, most: int) -> int:
        """The least number of steps that leave at most `accuracy`; `most` where there is none."""
        candidates = range(1, most)
        return 1 + bisect_left(
            candidates, True, key=lambda rounds: self.remaining(rounds, step) <= accuracy
        )


@dataclass(frozen=True)
class Point:
    """The state after `rounds` rounds."""

    rounds: int
    epochs: float
    """Passes over the data: component gradients by the number of components."""
    bits: float
    """Sent per worker, the mean over all."""
    seconds: float
    """Seconds of the communication, by the model of the link."""
    distance: float
    """|x - x*|^2."""
    suboptimality: float
    """F(x) - F(x*), down to the rounding errors of F."""


class Yardstick:
    """A problem with its solution x*, by which methods are measured; all start at 0."""

    def __init__(self, task: Comparison, problem: LinearModel, solution: Floats) -> None:
        """Raises OptimizeError where nothing is left to do, as the solution is the start."""
        self.task, self.problem, self.solution = task, problem, solution
        self.link = task.link_model()
        self.lowest = problem.composite(solution)
        self.first_distance = self.distance(np.zeros(problem.dimension))
        if self.first_distance == 0:
            raise OptimizeError("the solution is 0, where all methods start: try a lower --l1")

    @cached_property
    def decay(self) -> Decay:
        """The decay of the first distance by gradient steps."""
        return Decay(self.problem, self.solution)

    def distance(self, x: Floats) -> float:
        """|x - x*|^2."""
        with np.errstate(over="ignore"):
            # Not a product of BLAS, which adds in an order that depends on the processor.
            return float(np.square(x - self.solution).sum())

    def point(self, method: Method, distance: float) -> Point:
        """How far a method has come, at the distance that it is from x*."""
        problem = self.problem
        local_rows = sum(problem.m[i] for i in method.network.local)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = problem.composite(method.x) - self.lowest
        return Point(
            rounds=method.rounds,
            epochs=method.gradients / local_rows,
            bits=method.bits,
            seconds=self.link.seconds(method.rounds, method.bits, problem.dimension),
            distance=distance,
            # Rounding errors may make it negative.
            suboptimality=0.0 if gap < 0 else gap,
        )

    def vanishes(self, needs: Needs) -> bool:
        """Whether at x* there is nothing left of the gradients that a method needs to vanish."""
        if needs is Needs.NOTHING:
            return True
        here = self._squared_gradients(needs, self.solution)
        start = self._squared_gradients(needs, np.zeros(self.problem.dimension))
        return here <= _VANISHES * start

    def warnings(self, methods: list[str]) -> list[str]:
        """Warnings about methods that cannot reach the solution of this problem, with the cause."""
        failing = [name for name in methods if not self.vanishes(entry(name).needs)]
        return [
            f"{name} stalls at a floor, because {entry(name).needs.value} do not vanish at the "
            "solution; among those that need no such thing are isega, diana and ef21"
            for name in dict.fromkeys(failing)
        ]

    def _squared_gradients(self, needs: Needs, x: Floats) -> float:
        workers = range(self.problem.workers)
        if needs is Needs.WORKERS:
            gradients = self.problem.gradients(workers, x)
        else:
            # The first component of every worker tells whether they vanish.
            first = np.zeros((len(workers), 1), np.int64)
            gradients = self.problem.batch_gradients(workers, first, x)
        return float(np.square(gradients).sum())


def solution_of(problem: LinearModel) -> Floats:
    """x*, to rounding errors; raises OptimizeError where it is out of reach."""
    if problem.dimension > _MOST_FEATURES:
        raise OptimizeError(
            f"there are {problem.dimension:,} features: the reference solution is for at most "
            f"{_MOST_FEATURES:,}"
        )
    if problem.mu <= 0:
        raise OptimizeError("the problem must be strongly convex: choose --l2 above 0")
    try:
        return solve(problem)
    except RuntimeError as error:
        raise OptimizeError(f"no reference solution: {error}; try a larger --l2") from None
