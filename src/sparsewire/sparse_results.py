"""Turns what a sparse collective left in the engine into the arrays that its caller wants."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import Operation
from sparsewire.arrays import view
from sparsewire.sparse_collectives import Request
from sparsewire.sparse_input import SparseInput, join_rows
from sparsewire.sparse_vector import SparseVector

_WIDE, _NARROW = np.dtype(np.int64), np.dtype(np.int32)
_NARROW_MAX = int(np.iinfo(np.int32).max)


class Results:
    """Results of one operation, in the form of its input `x`: NumPy or torch."""

    def __init__(self, operation: Operation, x: Any, given: SparseInput) -> None:
        self._operation = operation
        self._x = x
        self._given = given

    def of_rank(self, rank: int, world_size: int, request: Request) -> Any:
        """What the collective that was requested gives rank `rank` of `world_size`."""
        if request.out is not None:
            # The engine wrote only what was named.
            self._operation.finish()
            return request.out
        if request.collective == "all_gather":
            return [self._sparse(other) for other in range(world_size)]
        if request.collective == "reduce_scatter":
            return self._part(rank, world_size)
        if request.collective == "reduce" and rank != request.root:
            return None
        return self._in_form(request.result)

    def _part(self, rank: int, world_size: int) -> Any:
        """Part `rank` of `world_size` of a vector, as a sparse vector with indices from 0."""
        length = self._given.length
        begin, end = rank * length // world_size, (rank + 1) * length // world_size
        return self._sparse(length=end - begin)

    def _in_form(self, form: str) -> Any:
        """The result as "sparse" or "dense", or with "auto" as what takes less memory."""
        if form == "auto":
            item = self._given.values.nbytes // max(self._given.values.size, 1) or 1
            dense = self._given.positions * self._given.row * item
            named = self._operation.named()
            sparse = named * (
                self._index_dtype(self._given.positions).itemsize + self._given.row * item
            )
            form = "sparse" if sparse < dense else "dense"
        return self._sparse() if form == "sparse" else self._dense()

    def _sparse(self, which: int = 0, length: int | None = None) -> Any:
        """List `which` of the results as a SparseVector or a torch sparse_coo tensor."""
        indices, values = self._operation.take_sparse(which)
        return self._wrap(
            indices, self._typed(values), self._given.length if length is None else length
        )

    def _typed(self, values: NDArray[np.uint8]) -> Any:
        """Bytes as values of the input's kind and dtype, in place."""
        if isinstance(self._x, SparseVector):
            return values.view(self._x.values.dtype)
        return sys.modules["torch"].from_numpy(values).view(self._x.dtype)

    def _dense(self) -> Any:
        """The result as a new dense array or tensor, in the shape of the input."""
        dense = self._empty(self._shape(self._given.length))
        self._operation.write_dense(view(dense, writable=True).pointer)
        return dense

    def _wrap(self, indices: NDArray[Any], values: Any, length: int) -> Any:
        if isinstance(self._x, SparseVector):
            indices, values = join_rows(indices, values, self._given)
            shape = (len(indices), *self._x.values.shape[1:])
            indices = indices.astype(self._index_dtype(self._given.length), copy=False)
            return SparseVector(indices, values.reshape(shape), length)
        return self._wrap_torch(indices, values, length)

    def _index_dtype(self, length: int) -> np.dtype[Any]:
        """That of the input, unless other ranks may name what it has no numbers for."""
        is_narrow = isinstance(self._x, SparseVector) and self._x.indices.dtype == _NARROW
        return _NARROW if is_narrow and length <= _NARROW_MAX else _WIDE

    def _wrap_torch(self, indices: NDArray[Any], values: Any, length: int) -> Any:
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
