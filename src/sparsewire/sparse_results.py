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
            dense_bytes = self._given.positions * self._given.row * self._x.dtype.itemsize
            form = "sparse" if self._operation.list_bytes() < dense_bytes else "dense"
        return self._sparse() if form == "sparse" else self._dense()

    def _dense(self) -> Any:
        """The result as a new dense array or tensor, in the shape of the input."""
        empty = np.empty if self._is_numpy else sys.modules["torch"].empty
        dense = empty(tuple(self._x.shape), dtype=self._x.dtype)
        self._operation.write_dense(view(dense, writable=True).pointer)
        return dense

    def _sparse(self, which: int = 0, length: int | None = None) -> Any:
        """List `which` of the results as a SparseVector or a torch sparse_coo tensor."""
        length = self._given.length if length is None else length
        indices, memory = self._operation.take_sparse(which)
        if self._is_numpy:
            indices, values = join_rows(indices, memory.view(self._x.dtype), self._given)
            return SparseVector(indices, values.reshape(len(indices), *self._x.shape[1:]), length)
        return self._tensor(indices, memory, length)

    @property
    def _is_numpy(self) -> bool:
        return isinstance(self._x, SparseVector)

    def _tensor(self, indices: NDArray[Any], memory: NDArray[np.uint8], length: int) -> Any:
        torch, x = sys.modules["torch"], self._x
        # Bits, because NumPy may not have the dtype.
        bits = np.dtype(f"u{x.dtype.itemsize}")
        indices, values = join_rows(indices, memory.view(bits), self._given)
        sparse_shape = tuple(x.shape[: x.sparse_dim()])
        if len(sparse_shape) > 1:
            positions = torch.from_numpy(np.stack(np.unravel_index(indices, sparse_shape)))
        else:
            positions = torch.from_numpy(indices)[None]
            sparse_shape = (length,)
        dense_shape = tuple(x.shape[x.sparse_dim() :])
        return torch.sparse_coo_tensor(
            positions,
            torch.from_numpy(values.view(np.uint8))
            .view(x.dtype)
            .reshape(len(indices), *dense_shape),
            sparse_shape + dense_shape,
            is_coalesced=True,
            check_invariants=False,
        )
