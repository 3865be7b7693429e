"""Turns what a sparse collective left in the engine into the arrays that its caller wants."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import Operation
from sparsewire.arrays import view
from sparsewire.sparse_input import SparseInput, join_rows
from sparsewire.sparse_vector import SparseVector

_INDEX_BYTES = 8


class Results:
    """Results of one operation, in the form of its input `x`: NumPy or torch."""

    def __init__(self, operation: Operation, x: Any, given: SparseInput) -> None:
        self._operation = operation
        self._x = x
        self._given = given

    def finish(self) -> None:
        """Make a dense target whole."""
        self._operation.finish()

    def part(self, rank: int, world_size: int) -> Any:
        """Part `rank` of `world_size` of a vector, as a sparse vector with indices from 0."""
        length = self._given.length
        begin, end = rank * length // world_size, (rank + 1) * length // world_size
        return self.sparse(length=end - begin)

    def in_form(self, form: str) -> Any:
        """The result as "sparse" or "dense", or with "auto" as what takes less memory."""
        if form == "auto":
            item = self._given.values.nbytes // max(self._given.values.size, 1) or 1
            dense = self._given.positions * self._given.row * item
            named = self._operation.named()
            sparse = named * (_INDEX_BYTES + self._given.row * item)
            form = "sparse" if sparse < dense else "dense"
        return self.sparse() if form == "sparse" else self.dense()

    def sparse(self, which: int = 0, length: int | None = None) -> Any:
        """List `which` of the results as a SparseVector or a torch sparse_coo tensor."""
        bound = self._operation.named(which)
        indices = np.empty(bound, np.int64)
        values = self._empty((bound * self._given.row,))
        pointer = view(values, writable=True).pointer if bound else 0
        count = self._operation.write_sparse(indices.ctypes.data, pointer, which)
        values = values[: count * self._given.row]
        return self._wrap(indices[:count], values, self._given.length if length is None else length)

    def dense(self) -> Any:
        """The result as a new dense array or tensor, in the shape of the input."""
        dense = self._empty(self._shape(self._given.length))
        self._operation.write_dense(view(dense, writable=True).pointer)
        return dense

    def _wrap(self, indices: NDArray[np.int64], values: Any, length: int) -> Any:
        if isinstance(self._x, SparseVector):
            indices, values = join_rows(indices, values, self._given)
            shape = (len(indices), *self._x.values.shape[1:])
            return SparseVector(
                indices.astype(self._index_dtype(length), copy=False), values.reshape(shape), length
            )
        return self._wrap_torch(indices, values, length)

    def _index_dtype(self, length: int) -> np.dtype[Any]:
        """That of the input, unless other ranks may name what it has no numbers for."""
        given: np.dtype[Any] = self._x.indices.dtype
        return given if length <= np.iinfo(given).max else np.dtype(np.int64)

    def _wrap_torch(self, indices: NDArray[np.int64], values: Any, length: int) -> Any:
        torch = sys.modules["torch"]
        x = self._x
        if self._given.pieces != 1:
            joined = join_rows(indices, _bits(values), self._given)
            indices, values = joined[0], torch.from_numpy(joined[1]).view(x.dtype)
        sparse_shape = tuple(x.shape[: x.sparse_dim()])
        if len(sparse_shape) > 1:
            positions = torch.from_numpy(np.stack(np.unravel_index(indices, sparse_shape)))
        else:
            positions = torch.from_numpy(indices)[None]
            sparse_shape = (length,)
        dense_shape = tuple(x.shape[x.sparse_dim() :])
        return torch.sparse_coo_tensor(
            positions,
            values.reshape(len(indices), *dense_shape),
            sparse_shape + dense_shape,
            is_coalesced=True,
            check_invariants=False,
        )

    def _shape(self, length: int) -> tuple[int, ...]:
        if isinstance(self._x, SparseVector):
            return (length, *self._x.values.shape[1:])
        return tuple(self._x.shape)

    def _empty(self, shape: tuple[int, ...]) -> Any:
        """Memory of the input's kind and dtype."""
        if isinstance(self._x, SparseVector):
            return np.empty(shape, self._x.values.dtype)
        return sys.modules["torch"].empty(shape, dtype=self._x.dtype)


def _bits(values: Any) -> NDArray[Any]:
    """A tensor's memory as a NumPy array; half types, which NumPy may not have, as integers."""
    torch = sys.modules["torch"]
    bits: NDArray[Any] = (
        values.view(torch.int16) if values.dtype.itemsize == 2 else values
    ).numpy()
    return bits
