"""Examples: where they come from, classes as -1 and +1, and their division among workers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from sparsewire.errors import DataError, OptimizeError
from sparsewire.tools.optimize.problems.problem import Floats, Integers

Rows = Any
"""A float64 array, or a `scipy.sparse.csr_array` of float64, for which SciPy has no types."""

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
"""The data sets that need no file, since scikit-learn brings them along."""
MAX_CLASSES = 1000
"""More distinct labels than this are measurements rather than classes."""


@dataclass(frozen=True)
class Examples:
    """`features`: Rows of shape (rows, dimension). `labels`: float64, shape (rows,)."""

    features: Rows
    labels: Floats

    def select(self, rows: slice | Integers) -> Examples:
        """These rows of it, in this order."""
        return Examples(self.features[rows], self.labels[rows])

    def fingerprint(self) -> int:
        """A checksum of all numbers: equal examples have the same one."""
        rows = self.features
        values = (rows.indptr, rows.indices, rows.data) if issparse(rows) else (rows,)
        checksum = zlib.crc32(repr(rows.shape).encode())
        for array in (*values, self.labels):
            checksum = zlib.crc32(array.tobytes(), checksum)
        return checksum

    def with_unit_rows(self) -> Examples:
        """The examples with every row scaled to Euclidean length 1; rows of zeros stay."""
        # scikit-learn takes seconds to import, and most ranks need none of it.
        from sklearn.preprocessing import normalize

        return Examples(_as_rows(normalize(self.features)), self.labels)


def read_examples(data: str) -> Examples:
    """The examples that `data` names: a file, plain or packed (.gz, .bz2), or a bundled set.

    Raises OptimizeError if there is no such data, DataError if it cannot be used.
    """
    if Path(data).exists():
        return read_libsvm(data)
    if data not in BUNDLED:
        raise OptimizeError(
            f"cannot read {data}: there is no such file; "
            f"data sets that need no file are {', '.join(BUNDLED)}"
        )
    from sklearn import datasets

    return from_arrays(*getattr(datasets, f"load_{data}")(return_X_y=True))


def from_arrays(features: Any, labels: ArrayLike) -> Examples:
    """Take an array or a SciPy sparse array (rows, dimension), and labels (rows,).

    Raises DataError where the shapes do not fit or a value is not finite.
    """
    rows, numbers = _as_rows(features), np.asarray(labels, np.float64)
    if len(rows.shape) != 2 or numbers.shape != rows.shape[:1]:
        raise DataError(
            f"features must have shape (rows, dimension) and labels (rows,), "
            f"not {rows.shape} and {numbers.shape}"
        )
    values = rows.data if issparse(rows) else rows
    if not (np.isfinite(values).all() and np.isfinite(numbers).all()):
        raise DataError("the data has values that are not finite: remove or replace them")
    return Examples(rows, numbers)


def read_libsvm(file: str | PathLike[str], dimension: int | None = None) -> Examples:
    """Read a LIBSVM file, plain or packed (.gz, .bz2), as sparse rows.

    `dimension` is needed where the last features occur in no row. Raises DataError where there is
    no such file, or it has no rows with features.
    """
    from sklearn.datasets import load_svmlight_file

    path = Path(file)
    try:
        features, labels = load_svmlight_file(str(path), n_features=dimension, zero_based="auto")
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, OverflowError, OSError, EOFError) as error:
        raise DataError(
            f"{path} is no LIBSVM file: {error}; every line is LABEL INDEX:VALUE INDEX:VALUE ..."
        ) from None
    if not len(labels) or not features.nnz:
        raise DataError(f"{path} has no rows with features")
    return from_arrays(features, labels)


def _as_rows(features: Any) -> Rows:
    if not issparse(features):
        return np.ascontiguousarray(features, np.float64)
    rows = csr_array(features, dtype=np.float64)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def positive_classes(labels: Floats, wanted: str | None = None) -> Floats:
    """The classes that become +1, ascending, out of `labels` of shape (rows,).

    `wanted` lists them, separated by commas. Without it the classes are sorted and the upper half
    is taken: of two classes the larger one, of 20 the last 10, of an odd number the middle one too.
    Raises OptimizeError unless that leaves something on both sides.
    """
    classes: Floats = np.unique(labels)
    if len(classes) < 2:
        raise OptimizeError(f"all rows have the label {classes[0]:g}: two classes are needed")
    if len(classes) > MAX_CLASSES:
        raise OptimizeError(
            f"there are {len(classes)} different labels, so this is no classification: "
            "use data with classes as labels"
        )
    if wanted is None:
        return classes[len(classes) // 2 :]
    chosen = _parse(wanted)
    missing = [f"{label:g}" for label in chosen if label not in classes]
    if missing:
        raise OptimizeError(f"--positive {', '.join(missing)}: no such class; {_listed(classes)}")
    if len(chosen) == len(classes):
        raise OptimizeError("--positive names every class: leave at least one out")
    return chosen


def signs(labels: Floats, positive: Floats) -> Floats:
    """+1 for every label in `positive`, -1 for the others; shape (rows,)."""
    return np.where(np.isin(labels, positive), 1.0, -1.0)


def _parse(text: str) -> Floats:
    try:
        return np.unique([float(entry) for entry in text.split(",")])
    except ValueError:
        raise OptimizeError(
            f"--positive {text!r} is no list of classes: write for example 1,2,5"
        ) from None


def _listed(classes: Floats) -> str:
    shown = ", ".join(f"{label:g}" for label in classes[:20])
    return f"there are {shown}" + (", ..." if len(classes) > 20 else "")


def by_index(rows: int, workers: int, *, equal: bool = False) -> list[Integers]:
    """The numbers of consecutive rows for each worker.

    Sizes differ by at most one; with `equal` they do not differ, and the last rows that are too
    many are left out. Raises ValueError where there are too few rows.
    """
    return _dealt(np.arange(rows), workers, equal)


def by_label(labels: Floats, workers: int, *, equal: bool = False) -> list[Integers]:
    """Rows sorted by label: workers differ as much as they can, most have one class only.

    Otherwise like `by_index`.
    """
    return _dealt(np.argsort(labels, kind="stable"), workers, equal)


def shuffled(rows: int, workers: int, seed: int, *, equal: bool = False) -> list[Integers]:
    """Rows in a random order: workers are alike, as far as the sizes of their parts allow.

    Otherwise like `by_index`.
    """
    return _dealt(np.random.default_rng(seed).permutation(rows), workers, equal)


def share(count: int, rank: int, world_size: int) -> slice:
    """The part of `count` items in a row that belongs to `rank`; sizes differ by at most one."""
    return slice(rank * count // world_size, (rank + 1) * count // world_size)


def _dealt(order: Integers, workers: int, equal: bool) -> list[Integers]:
    if not 1 <= workers <= len(order):
        raise ValueError(f"{len(order)} rows cannot be divided among {workers} workers")
    if equal:
        order = order[: len(order) // workers * workers]
    return np.array_split(order, workers)
