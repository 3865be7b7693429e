"""The objective and the accuracies over all ranks, from what each rank knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsewire import Communicator
from sparsewire.optimize.train.losses import Floats
from sparsewire.optimize.train.problem import Problem


@dataclass(frozen=True)
class Scores:
    """How good a model is; accuracies are shares of rows, None where there are no test rows."""

    objective: float
    train_accuracy: float
    test_accuracy: float | None


def score(
    comm: Communicator,
    problem: Problem,
    margins: Floats,
    test_margins: Floats,
    squared_norm: float,
) -> Scores:
    """Add up the parts of all ranks, in float64; collective, the same bits on every rank.

    `margins` and `test_margins` are those of this rank's share of the rows, `squared_norm` is its
    share of |w|^2.
    """
    parts = [
        problem.loss.value(margins).sum(),
        squared_norm,
        _right(margins),
        _right(test_margins),
        len(test_margins),
    ]
    loss_sum, norm, right, test_right, test_rows = comm.all_reduce(np.array(parts, np.float64))
    return Scores(
        float(problem.objective(loss_sum, norm)),
        float(right) / problem.rows,
        float(test_right / test_rows) if test_rows else None,
    )


def _right(margins: Floats) -> float:
    """Rows on the right side; one that the model cannot decide counts half."""
    return float((np.sign(margins) + 1).sum() / 2)
