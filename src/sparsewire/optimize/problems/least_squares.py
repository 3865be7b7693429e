"""Linear regression, with an l2 (ridge) and an l1 (lasso) term."""

from __future__ import annotations

import numpy as np

from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats


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
