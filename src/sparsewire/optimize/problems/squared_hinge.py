"""The linear support vector machine with squared hinge loss, with an l2 and an l1 term."""

from __future__ import annotations

import numpy as np

from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats


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
