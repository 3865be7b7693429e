"""A sparse vector of NumPy arrays, which the sparse collectives take and return."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sparsewire._core import DTYPES

ELEMENTS_MAX = 1 << 48
"""Limit on the elements of a vector, zeros included: kMaxCount in core/wire/layout.hpp."""

_INDEX_TYPES = (np.dtype(np.int32), np.dtype(np.int64))
# NumPy has bfloat16, the only other dtype, from another package.
_VALUE_TYPES = {np.dtype(name) for name in DTYPES if name != "bfloat16"}


class SparseVector:
    """Positions and their values; all other positions are zero.

    `indices`: int32 or int64, shape (n,), ascending, without duplicates, in [0, length). `values`:
    shape (n,), or (n, row) if each position holds a row, dtype float32, float64, float16,
    bfloat16 (of ml_dtypes), int32 or int64. `length`: number of positions; `length * row` is at
    most 2**48. NumPy arrays are kept, not copied. Lists of Python floats and empty lists become
    float32, the default of `empty`; lists of Python integers become int64. The collectives check
    order and range of the indices, so that every rank gets the error.

    Raises TypeError for wrong types, and ValueError for shapes or lengths that do not fit, or for
    floats in lists that float32 cannot hold.
    """

    __slots__ = ("indices", "length", "values")

    def __init__(self, indices: ArrayLike, values: ArrayLike, length: int) -> None:
        shapes = np.shape(indices), np.shape(values)
        if len(shapes[0]) != 1 or len(shapes[1]) not in (1, 2):
            raise ValueError(
                "indices must have shape (n,) and values (n,) or (n, row), "
                f"not {shapes[0]} and {shapes[1]}"
            )
        self.indices = _as_indices(indices)
        self.values = np.ascontiguousarray(_as_values(values))
        self.length = operator.index(length)
        if len(self.indices) != len(self.values):
            raise ValueError(
                f"there must be one value, or row, per index, but there are {len(self.indices)} "
                f"indices and {len(self.values)} values"
            )
        if self.values.ndim == 2 and self.values.shape[1] == 0:
            raise ValueError("rows of values must not be empty")
        if self.length < 0:
            raise ValueError(f"length must not be negative, not {self.length}")
        row = self.values.shape[1] if self.values.ndim == 2 else 1
        if self.length * row > ELEMENTS_MAX:
            raise ValueError(
                f"a vector may have 2**48 elements, not {self.length} positions of {row}: "
                "cut it into several"
            )

    @classmethod
    def from_dense(cls, array: ArrayLike) -> SparseVector:
        """Take the non-zeros, or non-zero rows, of an array of shape (length,) or (length, row).

        Indices are int32 if the length allows that, and int64 otherwise. Lists become arrays as in
        the class. Raises ValueError for other shapes, and the errors of the class.
        """
        dense = _as_values(array)
        if dense.ndim not in (1, 2):
            raise ValueError(f"the array must have one or two dimensions, not {dense.ndim}")
        nonzero = dense != 0
        indices = np.flatnonzero(nonzero if dense.ndim == 1 else nonzero.any(axis=1))
        index = np.int32 if len(dense) <= np.iinfo(np.int32).max else np.int64
        return cls(indices.astype(index, copy=False), dense[indices], len(dense))

    @classmethod
    def empty(
        cls, length: int, dtype: DTypeLike = np.float32, row: int | None = None
    ) -> SparseVector:
        """Make a vector of zeros. With `row`, each position holds a row of `row` elements.

        Raises TypeError for a dtype that the class does not take.
        """
        shape = (0,) if row is None else (0, row)
        return cls(np.empty(0, np.int64), np.empty(shape, _value_type(dtype)), length)

    @property
    def nnz(self) -> int:
        """The number of positions with a value, which may be zero."""
        return len(self.indices)

    @property
    def density(self) -> float:
        """`nnz` / `length`, the share of the positions with a value; 0.0 if `length` is 0."""
        return self.nnz / self.length if self.length else 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dense array: (length,), or (length, row)."""
        return (self.length, *self.values.shape[1:])

    def to_dense(self) -> NDArray[Any]:
        """Make a new dense array of shape (length,) or (length, row)."""
        dense = np.zeros(self.shape, self.values.dtype)
        dense[self.indices] = self.values
        return dense

    def __repr__(self) -> str:
        return f"SparseVector({self.nnz} of {self.shape}, {self.dtype})"


def _as_values(values: ArrayLike) -> NDArray[Any]:
    """An array of a dtype that collectives take; lists of floats become float32."""
    array = np.asarray(values)
    if array.dtype == np.float64 and _is_plain(values):
        array = _narrowed(array)
    _value_type(array.dtype)
    return array


def _is_plain(values: object) -> bool:
    """Whether these are Python's own numbers, or lists of them."""
    if isinstance(values, list | tuple):
        return all(map(_is_plain, values))
    return type(values) in (float, int, bool)


def _narrowed(array: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if (np.isinf(narrow) & ~np.isinf(array)).any():
        raise ValueError(
            "lists of floats become float32, and one is beyond that: pass "
            "numpy.asarray(values, numpy.float64), on all ranks"
        )
    return narrow


def _value_type(given: DTypeLike) -> np.dtype[Any]:
    """The NumPy dtype; raises TypeError for a dtype that collectives do not take."""
    try:
        dtype = np.dtype(given)
    except TypeError:
        raise TypeError(_not_supported(given)) from None
    if dtype not in _VALUE_TYPES and not (dtype.name == "bfloat16" and dtype.isnative):
        raise TypeError(_not_supported(dtype))
    return dtype


def _not_supported(dtype: object) -> str:
    return (
        f"values of dtype {dtype} are not supported: use one of {', '.join(DTYPES)} "
        "(ml_dtypes.bfloat16)"
    )


def _as_indices(indices: ArrayLike) -> NDArray[Any]:
    array = np.asarray(indices)
    if array.size == 0 and array.dtype not in _INDEX_TYPES:
        array = array.astype(np.int64)  # An empty list is an array of floats.
    if array.dtype not in _INDEX_TYPES:
        raise TypeError(f"indices must be int32 or int64, not {array.dtype}")
    return np.ascontiguousarray(array)
