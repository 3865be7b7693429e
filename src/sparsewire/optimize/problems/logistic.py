"""Logistic regression, with an l2 and an l1 term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from sparsewire.errors import DataError
from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats, Integers
from sparsewire.optimize.problems.sources import Examples


class Logistic(LinearModel):
    """phi(z, y) = log(1 + exp(-y z)), for labels y that are -1 or +1.

    mu is l2 exactly: far from 0 the loss is flat. Raises DataError for other labels.
    """

    curvature = 0.25

    def __init__(
        self,
        examples: Examples,
        parts: Sequence[Integers],
        *,
        l2: float = 0.0,
        l1: float = 0.0,
    ) -> None:
        if not (np.abs(examples.labels) == 1).all():
            raise DataError("logistic regression takes the labels -1 and +1")
        super().__init__(examples, parts, l2=l2, l1=l1)

    def _values(self, margins: Floats, labels: Floats) -> Floats:
        return np.logaddexp(0.0, -labels * margins)

    def _slopes(self, margins: Floats, labels: Floats) -> Floats:
        slopes: Floats = -labels * expit(-labels * margins)
        return slopes

    def _curvatures(self, margins: Floats, labels: Floats) -> Floats:
        curvatures: Floats = expit(margins) * expit(-margins)
        return curvatures
