"""Reads the data of a task as examples for its model: labelled, and scaled where that is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparsewire import Communicator
from sparsewire.errors import OptimizeError
from sparsewire.optimize.problems.labels import positive_classes, signs
from sparsewire.optimize.problems.least_squares import LeastSquares
from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.logistic import Logistic
from sparsewire.optimize.problems.sources import Examples, read_examples
from sparsewire.optimize.problems.squared_hinge import SquaredHinge
from sparsewire.optimize.ranks import check_alike
from sparsewire.optimize.task import Task

MODELS: dict[str, type[LinearModel]] = {
    "logistic": Logistic,
    "svm": SquaredHinge,
    "least-squares": LeastSquares,
}


@dataclass(frozen=True)
class Data:
    """Examples whose labels are -1 and +1 where the model takes classes."""

    name: str
    examples: Examples
    positive: list[float]
    """The classes that became +1; none where labels are as they were."""


def load(task: Task, comm: Communicator | None = None) -> Data:
    """Read the task's LIBSVM file, plain or packed (.gz, .bz2), or what scikit-learn bundles.

    Raises OptimizeError or DataError where there is none, or it does not fit the model. With a
    communicator it is collective, and raises MismatchError where ranks differ in data or options.
    """
    examples = read_examples(task.data)
    if comm is not None:
        check_alike(comm, task, examples)
    labels, positive = examples.labels, []
    if MODELS[task.model].takes_classes:
        classes = positive_classes(labels, task.positive)
        labels, positive = signs(labels, classes), classes.tolist()
    elif task.positive is not None:
        raise OptimizeError("--positive is for classes: least squares takes labels as they are")
    scaled = examples.with_unit_rows() if task.normalize else examples
    return Data(Path(task.data).name, Examples(scaled.features, labels), positive)
