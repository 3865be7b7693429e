"""Rows of a table that changed: a part of a tensor, given as a sparse vector of new values."""

from __future__ import annotations

import numpy as np

from sparsewire.errors import InputError, MismatchError
from sparsewire.sparse_vector import SparseVector
from sparsewire.weights.versions.named import tensor_of
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.tensors import Tensor


def with_rows(name: str, base: Tensor | None, rows: SparseVector) -> Tensor:
    """`base` with the new values of `rows`: new memory, of the same shape.

    Raises MismatchError where the table is not there or is another one, and InputError for
    indices that do not ascend within it.
    """
    values = tensor_of(name, rows.values)
    row = values.shape[1:]
    if base is None:
        raise MismatchError(f"{shown(name)} is given by rows, and no version had it: give it whole")
    if base.dtype != values.dtype or base.shape != (rows.length, *row):
        raise MismatchError(
            f"{shown(name)} has dtype {base.dtype} and shape {list(base.shape)}, and its rows have "
            f"{values.dtype} and are of {[rows.length, *row]}"
        )
    indices = rows.indices.astype(np.int64)
    if len(indices) and (
        indices[0] < 0 or indices[-1] >= rows.length or (np.diff(indices) <= 0).any()
    ):
        raise InputError(f"{shown(name)}: indices of rows must ascend from 0 to {rows.length - 1}")
    data = base.data.copy()
    if len(indices):
        data.reshape(rows.length, -1)[indices] = values.data.reshape(len(indices), -1)
    return base._replace(data=data)
