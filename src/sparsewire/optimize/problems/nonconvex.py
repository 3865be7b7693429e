"""Logistic regression with a penalty that is bounded, and so not convex."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsewire.optimize.problems.logistic import Logistic
from sparsewire.optimize.problems.problem import Floats, Integers
from sparsewire.optimize.problems.sources import Examples


class NonconvexLogistic(Logistic):
    """The logistic loss plus weight sum_k x_k^2 / (1 + x_k^2); its values are never below 0.

    The penalty's second derivative is in [-weight/2, 2 weight], so mu is 0.
    """

    def __init__(
        self, examples: Examples, parts: Sequence[Integers], *, weight: float, l1: float = 0.0
    ) -> None:
        """Raises ValueError where `weight` is negative, and what `Logistic` raises."""
        if not 0 <= weight < np.inf:
            raise ValueError(f"weight must be 0 or more and finite, not {weight}")
        self.weight = weight
        super().__init__(examples, parts, l1=l1)

    def _penalty(self, x: Floats) -> float:
        squares = np.square(x)
        return self.weight * float((squares / (1 + squares)).sum())

    def _penalty_gradient(self, x: Floats) -> Floats:
        gradient: Floats = 2 * self.weight * x / np.square(1 + np.square(x))
        return gradient

    def _penalty_curvature(self, x: Floats) -> Floats:
        squares = np.square(x)
        curvature: Floats = 2 * self.weight * (1 - 3 * squares) / (1 + squares) ** 3
        return curvature

    def _penalty_bounds(self) -> tuple[float, float]:
        return -self.weight / 2, 2 * self.weight
