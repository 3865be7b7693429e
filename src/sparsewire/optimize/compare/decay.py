"""How gradient steps bring a point closer to the solution, direction by direction."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats


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
