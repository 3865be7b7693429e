"""Reads a data set into signed rows, and divides rows and features among the ranks."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sparsewire.errors import OptimizeError
from sparsewire.optimize.problems.bundled import read_examples
from sparsewire.optimize.problems.labels import positive_classes, signs
from sparsewire.optimize.train.request import Request

Csr = Any
"""A `scipy.sparse.csr_array` of float64; SciPy has no types of its own."""


@dataclass(frozen=True)
class SignedRows:
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


def load(request: Request) -> SignedRows:
    """Read the request's LIBSVM file, plain or packed (.gz, .bz2), or what scikit-learn bundles.

    Raises OptimizeError or DataError where there is no such file, or it is no data set of at least
    two classes.
    """
    examples = read_examples(request.data)
    positive = positive_classes(examples.labels, request.positive)
    if request.normalize:
        examples = examples.with_unit_rows()
    rows = csr_array(examples.features)
    rows.eliminate_zeros()
    rows.data *= np.repeat(signs(examples.labels, positive), np.diff(rows.indptr))
    return SignedRows(Path(request.data).name, rows, positive.tolist())


def split(examples: SignedRows, test_share: float, seed: int) -> tuple[Csr, Csr]:
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
