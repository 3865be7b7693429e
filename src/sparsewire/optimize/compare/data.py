"""Makes the problem of a study: reads the data, makes labels, divides the rows among workers."""

from __future__ import annotations

from sparsewire.errors import OptimizeError
from sparsewire.optimize.compare.request import Request
from sparsewire.optimize.problems.bundled import read_examples
from sparsewire.optimize.problems.labels import positive_classes, signs
from sparsewire.optimize.problems.least_squares import LeastSquares
from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.logistic import Logistic
from sparsewire.optimize.problems.partition import by_index, by_label, shuffled
from sparsewire.optimize.problems.problem import Integers
from sparsewire.optimize.problems.sources import Examples

_PROBLEMS: dict[str, type[LinearModel]] = {"logistic": Logistic, "least-squares": LeastSquares}


def load_problem(request: Request) -> LinearModel:
    """The request's function, with equally many rows for each worker; the last are left out.

    Raises OptimizeError or DataError for unusable data.
    """
    examples = load_examples(request)
    parts = _divide(examples, request)
    l2 = 1 / sum(map(len, parts)) if request.l2 is None else request.l2
    return _PROBLEMS[request.model](examples, parts, l2=l2, l1=request.l1)


def load_examples(request: Request) -> Examples:
    """The data, with labels -1 and +1 for logistic regression, and as they are for least squares.

    Raises OptimizeError or DataError where there is none, or it does not fit the model.
    """
    examples = read_examples(request.data)
    labels = examples.labels
    if request.model == "logistic":
        labels = signs(labels, positive_classes(labels, request.positive))
    elif request.positive is not None:
        raise OptimizeError("--positive is for classes: least squares takes labels as they are")
    scaled = examples.with_unit_rows() if request.normalize else examples
    return Examples(scaled.features, labels)


def _divide(examples: Examples, request: Request) -> list[Integers]:
    rows, workers = len(examples.labels), request.workers
    if rows < workers:
        raise OptimizeError(f"{rows} rows cannot be divided among {workers} workers")
    if request.split == "label":
        return by_label(examples.labels, workers, equal=True)
    if request.split == "index":
        return by_index(rows, workers, equal=True)
    return shuffled(rows, workers, request.seed, equal=True)
