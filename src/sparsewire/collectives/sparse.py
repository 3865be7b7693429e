"""The sparse collectives: calls become operations of the engine, and their results arrays.

Rows of 16 to 4096 elements are sent as rows. Shorter and longer rows are cut into pieces for which
the engine has a format, and put together again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import ALGORITHMS, COLLECTIVES, ROW_MAX, ROW_MIN
from sparsewire.collectives.request import Request
from sparsewire.collectives.views import (
    View,
    check_apart,
    codecs,
    dtype_name,
    sparse_code,
    view,
)
from sparsewire.sparse_vector import SparseVector


@dataclass(frozen=True)
class SparseInput:
    """A sparse vector `x` ready for the engine, without duplicate positions.

    The user's rows of `width` elements were cut into `pieces` positions of `row` elements each.
    """

    x: Any
    indices: NDArray[Any]
    values: View
    length: int
    width: int
    row: int

    @property
    def pieces(self) -> int:
        return self.width // self.row

    @property
    def positions(self) -> int:
        """The length in the engine's positions."""
        return self.length * self.pieces


def read(x: Any) -> SparseInput:
    """The engine's view of a SparseVector or of a torch tensor, whose duplicates are summed.

    Copies only to sum duplicates and to cut rows. Raises TypeError and ValueError for dtypes and
    devices that the engine does not take.
    """
    if isinstance(x, SparseVector):
        width = 1 if x.values.ndim == 1 else x.values.shape[1]
        return _cut(x, x.indices, view(x.values, writable=False), x.length, width)
    x = x if x.is_coalesced() else x.coalesce()
    if not x.is_cpu:
        raise ValueError(f"the tensor is on {x.device}: pass x.cpu()")
    sparse_shape = x.shape[: x.sparse_dim()]
    flat = _flat(x._indices().numpy(), tuple(sparse_shape))
    values = x._values().detach().resolve_neg().contiguous()
    width = int(np.prod(x.shape[x.sparse_dim() :], dtype=np.int64))
    length = int(np.prod(sparse_shape, dtype=np.int64))
    return _cut(x, np.ascontiguousarray(flat), view(values, writable=False), length, width)


def _flat(indices: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Flat indices, shape (n,), of `indices`, shape (dimensions, n).

    A position out of range becomes -1, so that the engine tells all ranks.
    """
    if len(shape) == 1:
        flat: NDArray[np.int64] = indices[0]
        return flat
    bounds = np.array(shape)[:, None]
    inside = ((indices >= 0) & (indices < bounds)).all(axis=0)
    strides = np.append(np.cumprod(shape[:0:-1])[::-1], 1).astype(np.int64)
    return np.where(inside, strides @ indices, -1)


def _cut(x: Any, indices: NDArray[Any], values: View, length: int, width: int) -> SparseInput:
    row = row_for(width)
    pieces = width // row
    if pieces > 1:
        # Indices out of range stay out of range, so that the engine tells all ranks.
        inside = (indices >= 0) & (indices < length)
        first = np.where(inside, indices.astype(np.int64) * pieces, -pieces)
        narrow = length * pieces <= np.iinfo(indices.dtype).max
        cut = (first[:, None] + np.arange(pieces)).reshape(-1)
        indices = cut.astype(indices.dtype) if narrow else cut
    return SparseInput(x, indices, values, length, width, row)


def row_for(width: int) -> int:
    """The size of the largest row that the engine has and that divides rows of `width` elements."""
    for pieces in range(1, width // ROW_MIN + 1):
        if width % pieces == 0 and width // pieces <= ROW_MAX:
            return width // pieces
    return 1


def join_rows(
    indices: NDArray[Any], values: NDArray[Any], given: SparseInput
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Join positions of `given.row` elements into rows of `given.width` elements again."""
    if given.pieces == 1:
        return indices, values
    rows, where = np.unique(indices // given.pieces, return_inverse=True)
    joined = np.zeros((len(rows), given.pieces, given.row), values.dtype)
    joined[where, indices % given.pieces] = values.reshape(-1, given.row)
    return rows, joined.reshape(len(rows), given.width)


def part_of(length: int, rank: int, world_size: int) -> tuple[int, int]:
    """Begin and end of the part of rank `rank` in a vector of this length."""
    return rank * length // world_size, (rank + 1) * length // world_size


class Lists(Protocol):
    """The results of an operation: lists of indices and values as bytes, or one dense array."""

    def take_sparse(self, list: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]: ...

    def write_dense(self, out: int) -> None: ...

    def finish(self) -> None: ...


def call_arguments(request: Request, given: SparseInput, collective: str) -> dict[str, Any]:
    """Arguments of the engine's `submit_sparse`, to carry a request out by this `collective`.

    Purpose, timeout and `awaited` are not among them.
    """
    segment_codec, result_codec = codecs(request.precision, given.values.dtype, request.op)
    return {
        "indices": given.indices.ctypes.data,
        "is_wide": given.indices.itemsize == 8,
        "named": len(given.indices),
        "values": given.values.pointer,
        "length": given.positions,
        "row": given.row,
        "dtype": given.values.dtype,
        "op": sparse_code(request.op, given.values.dtype),
        "collective": COLLECTIVES[collective],
        "algorithm": ALGORITHMS[request.algorithm],
        "root": request.root,
        "unit": given.pieces,
        "segment_codec": segment_codec,
        "result_codec": result_codec,
        "seed": request.seed,
        "out": 0 if request.out is None else _output(request.out, given),
    }


def _output(out: Any, given: SparseInput) -> int:
    output = view(out, writable=True)
    check_apart(output, given.values.pointer, given.values.nbytes)
    check_apart(output, given.indices.ctypes.data, given.indices.nbytes)
    size = given.length * given.width
    if (output.dtype, output.size) != (given.values.dtype, size):
        raise ValueError(
            f"out must be a dense array of {size} elements of {dtype_name(given.values.dtype)}, "
            f"not {output.size} of {dtype_name(output.dtype)}"
        )
    return output.pointer


class Results:
    """Results of one operation, in the form of its input: NumPy or torch."""

    def __init__(self, lists: Lists, given: SparseInput) -> None:
        self._lists = lists
        self._given = given
        self._x = given.x

    def of_rank(self, rank: int, world_size: int, request: Request) -> Any:
        """The result of the requested collective for rank `rank` of `world_size`."""
        if request.out is not None:
            # The engine wrote only the positions that have values.
            self._lists.finish()
            return request.out
        if request.collective == "all_gather":
            return [self._sparse(other) for other in range(world_size)]
        if request.collective == "reduce_scatter":
            return self._part(rank, world_size)
        if request.collective == "reduce" and rank != request.root:
            return None
        return self._dense() if request.is_dense else self._sparse()

    def _part(self, rank: int, world_size: int) -> Any:
        """Part `rank` of `world_size` of a vector, as a sparse vector with indices from 0."""
        begin, end = part_of(self._given.length, rank, world_size)
        return self._sparse(length=end - begin)

    def _dense(self) -> Any:
        """The result as a new dense array or tensor, in the shape of the input."""
        empty = np.empty if self._is_numpy else sys.modules["torch"].empty
        dense = empty(tuple(self._x.shape), dtype=self._x.dtype)
        self._lists.write_dense(view(dense, writable=True).pointer)
        return dense

    def _sparse(self, which: int = 0, length: int | None = None) -> Any:
        """List `which` of the results as a SparseVector or a torch sparse_coo tensor."""
        length = self._given.length if length is None else length
        indices, memory = self._lists.take_sparse(which)
        if self._is_numpy:
            indices, values = join_rows(indices, memory.view(self._x.dtype), self._given)
            # Indices may be wider than the input's because of cut rows, or of other ranks.
            if length <= np.iinfo(self._x.indices.dtype).max:
                indices = indices.astype(self._x.indices.dtype, copy=False)
            return SparseVector(indices, values.reshape(len(indices), *self._x.shape[1:]), length)
        return self._tensor(indices, memory, length)

    @property
    def _is_numpy(self) -> bool:
        return isinstance(self._x, SparseVector)

    def _tensor(self, indices: NDArray[Any], memory: NDArray[np.uint8], length: int) -> Any:
        torch, x = sys.modules["torch"], self._x
        # Values are taken as bits, because NumPy may not have the dtype.
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
            device="cpu",
            is_coalesced=True,
            check_invariants=False,
        )
