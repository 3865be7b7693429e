"""The losses of linear models; each takes an l2 and an l1 term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from sparsewire.tools.optimize.problems.examples import Examples
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats, Integers


class LeastSquares(LinearModel):
    """phi(z, b) = (z - b)^2 / 2."""

    name = "linear regression"
    curvature = 1.0
    least_curvature = 1.0

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return np.square(margins - labels) / 2

    def slopes(self, margins: Floats, labels: Floats) -> Floats:
        return margins - labels

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return np.ones_like(margins)


class Logistic(LinearModel):
    """phi(z, y) = log(1 + exp(-y z)), for labels y that are -1 or +1.

    mu is l2 exactly: far from 0 the loss is flat.
    """

    name = "logistic regression"
    takes_classes = True
    curvature = 0.25

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return np.logaddexp(0.0, -labels * margins)

    def slopes(self, margins: Floats, labels: Floats) -> Floats:
        slopes: Floats = -labels * expit(-labels * margins)
        return slopes

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        curvatures: Floats = expit(margins) * expit(-margins)
        return curvatures


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


class SquaredHinge(LinearModel):
    """phi(z, y) = max(0, 1 - y z)^2, for labels y that are -1 or +1.

    Its second derivative jumps from 2 to 0 where y z passes 1, so mu is l2 exactly.
    """

    name = "linear SVM (squared hinge)"
    takes_classes = True
    curvature = 2.0

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return np.square(np.maximum(0.0, 1.0 - labels * margins))

    def slopes(self, margins: Floats, labels: Floats) -> Floats:
        return -2.0 * labels * np.maximum(0.0, 1.0 - labels * margins)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return np.where(labels * margins < 1.0, 2.0, 0.0)
