"""Logistic regression, with an l2 and an l1 term."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats


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
