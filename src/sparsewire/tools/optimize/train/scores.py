"""The scores of a training: objective and accuracies over all ranks, time in collectives."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from sparsewire import Communicator
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats


@dataclass(frozen=True)
class Scores:
    """How good a model is; accuracies are shares of rows, None where there are no test rows."""

    objective: float
    train_accuracy: float
    test_accuracy: float | None


Judged = tuple[Floats, Floats]
"""The margins of some rows, and their labels."""


def score(
    comm: Communicator, problem: LinearModel, training: Judged, test: Judged, squared_norm: float
) -> Scores:
    """Add up the parts of all ranks, in float64; collective, the same bits on every rank.

    `training` and `test` are this rank's shares of the rows, `squared_norm` is that of |w|^2.
    """
    parts = [
        problem.values(*training).sum(),
        squared_norm,
        _right(*training),
        _right(*test),
        len(test[0]),
    ]
    loss_sum, norm, right, test_right, test_rows = comm.all_reduce(np.array(parts, np.float64))
    (rows,) = problem.m
    return Scores(
        float(loss_sum / rows + problem.l2 / 2 * norm),
        float(right) / rows,
        float(test_right / test_rows) if test_rows else None,
    )


def _right(margins: Floats, labels: Floats) -> float:
    """Rows on the right side; one that the model cannot decide counts half."""
    return float((np.sign(margins * labels) + 1).sum() / 2)


class Stopwatch:
    """`seconds` is the wall-clock time of all blocks so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started
