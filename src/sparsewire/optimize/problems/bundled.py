"""Reads LIBSVM files, or data sets that scikit-learn brings along: to try things without a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)

from sparsewire.errors import OptimizeError
from sparsewire.optimize.problems.sources import Examples, from_arrays, read_libsvm

Floats = npt.NDArray[np.float64]

_LOADERS: dict[str, Callable[..., Any]] = {
    "breast_cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "digits": load_digits,
    "iris": load_iris,
    "wine": load_wine,
}


def read_examples(data: str) -> Examples:
    """What the user calls `data`: a file, plain or packed (.gz, .bz2), or a bundled set.

    Raises OptimizeError where there is no such thing, DataError where it cannot be used.
    """
    arrays = bundled(data)
    if arrays is not None:
        return from_arrays(*arrays)
    if not Path(data).exists():
        raise OptimizeError(
            f"cannot read {data}: there is no such file; "
            f"data sets that need no file are {', '.join(_LOADERS)}"
        )
    return read_libsvm(data)


def bundled(data: str) -> tuple[Floats, Floats] | None:
    """Features (rows, dimension) and labels (rows,) of the set called `data`, or None.

    A file of that name comes first.
    """
    if data not in _LOADERS or Path(data).exists():
        return None
    features, labels = _LOADERS[data](return_X_y=True)
    return np.asarray(features, np.float64), np.asarray(labels, np.float64)
