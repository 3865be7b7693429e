"""Reads a data set into signed rows, and divides rows and features among the ranks."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import normalize

from sparsewire.optimize.bundled import bundled, bundled_names
from sparsewire.optimize.errors import OptimizeError
from sparsewire.optimize.labels import positive_classes, signs
from sparsewire.optimize.request import Request

Csr = Any
"""A `scipy.sparse.csr_array` of float64; SciPy has no types of its own."""


@dataclass(frozen=True)
class Examples:
    """A data set of two classes.

    `rows` is a CSR array (rows, features), float64, where row i is y_i x_i: the features times
    the label, -1 or +1. A model w puts a row on the right side exactly if rows @ w > 0.
    """

    name: str
    rows: Csr
    positive: list[float]
    """The classes of the file that became +1."""

    def fingerprint(self) -> int:
        """A checksum of all numbers: ranks that read the same data have the same one."""
        checksum = 0
        for array in (self.rows.indptr, self.rows.indices, self.rows.data):
            checksum = zlib.crc32(array.tobytes(), checksum)
        return checksum


def load(request: Request) -> Examples:
    """Read the request's LIBSVM file, plain or packed (.gz, .bz2), or what scikit-learn bundles.

    Raises OptimizeError where there is no such file, or it is no data set of at least two classes.
    """
    file = Path(request.data)
    features, labels = bundled(request.data) or _read(file)
    positive = positive_classes(labels, request.positive)
    if request.normalize:
        features = normalize(features, copy=False)
    rows = csr_array(features)
    rows.eliminate_zeros()
    rows.data *= np.repeat(signs(labels, positive), np.diff(rows.indptr))
    return Examples(file.name, rows, positive.tolist())


def _read(file: Path) -> tuple[Csr, npt.NDArray[np.float64]]:
    try:
        features, labels = load_svmlight_file(str(file), zero_based="auto")
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise OptimizeError(
            f"cannot read {file}: {error.strerror}; "
            f"data sets that need no file are {', '.join(bundled_names())}"
        ) from None
    except (ValueError, OverflowError, OSError, EOFError) as error:
        raise OptimizeError(
            f"{file} is no LIBSVM file: {error}; every line is LABEL INDEX:VALUE INDEX:VALUE ..."
        ) from None
    if not len(labels) or not features.nnz:
        raise OptimizeError(f"{file} has no rows with features")
    if not (np.isfinite(features.data).all() and np.isfinite(labels).all()):
        raise OptimizeError(f"{file} has values that are not finite: remove or replace them")
    return features, labels


def split(examples: Examples, test_share: float, seed: int) -> tuple[Csr, Csr]:
    """Shuffle the rows and hold out a share of them: (training rows, test rows).

    It depends on the data and the seed, not on the number of ranks.
    """
    count = examples.rows.shape[0]
    order = np.random.default_rng(seed).permutation(count)
    held_out = round(count * test_share)
    if held_out == count:
        raise OptimizeError(f"--test-share {test_share:g} leaves nothing to train on")
    return examples.rows[order[held_out:]], examples.rows[order[:held_out]]


def share(count: int, rank: int, world_size: int) -> slice:
    """The part of `count` items that belongs to `rank`; sizes differ by at most one."""
    return slice(rank * count // world_size, (rank + 1) * count // world_size)
