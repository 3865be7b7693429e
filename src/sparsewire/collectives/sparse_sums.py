"""Sparse collectives over dedicated aggregators, which only add up: each becomes one all_reduce."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import DTYPES, Operation
from sparsewire.collectives.request import Request
from sparsewire.collectives.sparse import SparseInput, part_of
from sparsewire.sparse_vector import ELEMENTS_MAX

_AS_INTEGERS = {DTYPES["float32"]: DTYPES["int32"], DTYPES["float64"]: DTYPES["int64"]}
"""Integer dtypes for values that are only added to zeros: -0 keeps its sign, and NaN its bits."""


def brought(request: Request, given: SparseInput, rank: int, world_size: int) -> SparseInput:
    """The input of a rank to the sum that carries out the requested collective."""
    if request.collective in {"broadcast", "all_gather"} and request.precision is None:
        dtype = given.values.dtype
        given = replace(given, values=given.values._replace(dtype=_AS_INTEGERS.get(dtype, dtype)))
    if request.collective == "broadcast" and rank != request.root:
        return replace(given, indices=given.indices[:0])
    if request.collective != "all_gather":
        return given
    if given.positions * given.row * world_size > ELEMENTS_MAX:
        raise ValueError(
            f"over aggregators, all_gather lays vectors of {world_size} ranks end to end, and that "
            f"is more than {ELEMENTS_MAX} elements: leave aggregators= out, or gather shorter ones"
        )
    # Vectors end to end. Indices out of range become -1, so that the engine tells all ranks.
    inside = (given.indices >= 0) & (given.indices < given.positions)
    moved = given.indices.astype(np.int64) + rank * given.positions
    indices = np.ascontiguousarray(np.where(inside, moved, -1))
    return replace(given, indices=indices, length=given.length * world_size)


class SummedLists:
    """The sum of one operation, cut into the lists that the collective gives this rank."""

    def __init__(
        self, operation: Operation, request: Request, given: SparseInput, rank: int, world_size: int
    ) -> None:
        self._operation = operation
        self._row_bytes = given.row * given.x.dtype.itemsize
        parts = {
            "all_gather": [(r * given.length, (r + 1) * given.length) for r in range(world_size)],
            "reduce_scatter": [part_of(given.length, rank, world_size)],
        }.get(request.collective, [(0, given.length)])
        self._parts = [(begin * given.pieces, end * given.pieces) for begin, end in parts]
        self._sum: tuple[NDArray[Any], NDArray[np.uint8]] | None = None

    def take_sparse(self, which: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The indices of a part, counted from 0, and its values as bytes."""
        if self._sum is None:
            self._sum = self._operation.take_sparse()
        indices, values = self._sum
        begin, end = self._parts[which]
        first, last = np.searchsorted(indices, (begin, end))
        cut = values[first * self._row_bytes : last * self._row_bytes]
        return indices[first:last] - begin, cut

    def write_dense(self, out: int) -> None:
        self._operation.write_dense(out)

    def finish(self) -> None:
        self._operation.finish()
