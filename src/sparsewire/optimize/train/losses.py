"""Losses of linear classification, as functions of the signed margins z = y x.w."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]


class Loss(Protocol):
    """A convex, smooth loss. All methods work element by element on margins of any shape."""

    name: str
    curvature: float
    """An upper bound on the second derivative."""

    def value(self, margins: Floats) -> Floats: ...
    def slope(self, margins: Floats) -> Floats:
        """The derivative by the margin."""
        ...


class Logistic:
    """log(1 + exp(-z)): logistic regression."""

    name = "logistic regression"
    curvature = 0.25

    def value(self, margins: Floats) -> Floats:
        return np.logaddexp(0.0, -margins)

    def slope(self, margins: Floats) -> Floats:
        result: Floats = -expit(-margins)
        return result


class SquaredHinge:
    """max(0, 1 - z)^2: the linear support vector machine, smooth as block descent needs it."""

    name = "linear SVM (squared hinge)"
    curvature = 2.0

    def value(self, margins: Floats) -> Floats:
        return np.square(np.maximum(0.0, 1.0 - margins))

    def slope(self, margins: Floats) -> Floats:
        return -2.0 * np.maximum(0.0, 1.0 - margins)


LOSSES: dict[str, Loss] = {"logistic": Logistic(), "svm": SquaredHinge()}
"""By the name of the model."""
