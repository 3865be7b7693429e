"""The data sets that scikit-learn brings along, by name: to try things without a file."""

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

Floats = npt.NDArray[np.float64]

_LOADERS: dict[str, Callable[..., Any]] = {
    "breast_cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "digits": load_digits,
    "iris": load_iris,
    "wine": load_wine,
}


def bundled(data: str) -> tuple[Floats, Floats] | None:
    """Features (rows, dimension) and labels (rows,) of the set called `data`, or None.

    A file of that name comes first.
    """
    if data not in _LOADERS or Path(data).exists():
        return None
    features, labels = _LOADERS[data](return_X_y=True)
    return np.asarray(features, np.float64), np.asarray(labels, np.float64)


def bundled_names() -> list[str]:
    """What `bundled` knows."""
    return list(_LOADERS)
