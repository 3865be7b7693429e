"""Real data for the tests of methods and operators: from scikit-learn, and LIBSVM's files."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from sparsewire.tools.optimize.problems.examples import Examples, by_label, from_arrays, read_libsvm
from sparsewire.tools.optimize.problems.losses import Logistic

FILES = Path(os.environ.get("SPARSEWIRE_DATA", "."))
"""Where the LIBSVM files of the full checks are."""


@cache
def examples(name: str) -> Examples:
    """Two classes, labelled -1 and +1, with rows of length 1."""
    if name == "digits":
        loaded = from_arrays(*load_digits(return_X_y=True))
        positive = loaded.labels >= 5
    elif name == "breast_cancer":
        loaded = from_arrays(*load_breast_cancer(return_X_y=True))
        positive = loaded.labels == 1
    else:
        loaded = read_libsvm(FILES / name)
        positive = loaded.labels == loaded.labels.max()
    return Examples(loaded.with_unit_rows().features, np.where(positive, 1.0, -1.0))


@cache
def logistic(
    name: str, workers: int, l2: float, rows: int | None = None, l1: float = 0
) -> Logistic:
    """Rows sorted by label, so that most workers have one class only; `rows` for each."""
    data = examples(name)
    parts = by_label(data.labels, workers, equal=True)
    # Spread over a worker's part, so that few rows are as different as all.
    parts = [part[np.linspace(0, len(part) - 1, rows or len(part)).astype(int)] for part in parts]
    return Logistic(data, parts, l2=l2, l1=l1)
