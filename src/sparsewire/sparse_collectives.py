"""The sparse collectives: calls become operations of the engine, and what these leave, arrays."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import ALGORITHMS, COLLECTIVES, FORMS, Operation
from sparsewire.arguments import Precision, check_integer, check_seed, codecs, sparse_code
from sparsewire.arrays import check_apart, dtype_name, view
from sparsewire.sparse_input import SparseInput, is_sparse, join_rows
from sparsewire.sparse_vector import SparseVector

_OWNER_ALGORITHMS = {"auto", "stream", "ssar_split_allgather", "dsar_split_allgather"}


@dataclass(frozen=True)
class Request:
    """What a caller of a sparse collective asks for; `out` is a dense array to write to."""

    collective: str
    op: str = "sum"
    root: int = 0
    algorithm: str = "auto"
    precision: Precision = None
    seed: int = 0
    result: str = "sparse"
    out: Any = None


def check_request(request: Request, x: object, world_size: int, dedicated: bool) -> None:
    """Raise TypeError or ValueError for what no rank can do."""
    if not is_sparse(x):
        raise TypeError(
            f"{request.collective} takes a SparseVector or a torch sparse_coo tensor, not "
            f"{type(x).__name__}: make one with SparseVector.from_dense(x) or x.to_sparse()"
        )
    if request.out is not None and request.result == "sparse":
        raise ValueError('out= is a dense array, but result="sparse": leave one of them out')
    if request.result not in FORMS:
        raise ValueError(f"result {request.result!r} is not known: use one of {', '.join(FORMS)}")
    if request.algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm {request.algorithm!r} is not known: use one of {', '.join(ALGORITHMS)}"
        )
    check_integer("root", request.root, world_size)
    check_seed(request.seed)
    if dedicated:
        _check_dedicated(request)


def _check_dedicated(request: Request) -> None:
    if request.collective != "all_reduce":
        raise ValueError(
            f"{request.collective} needs connections between the workers, and with dedicated "
            "aggregators there are none: leave aggregators= out, or use all_reduce"
        )
    if request.algorithm not in _OWNER_ALGORITHMS:
        raise ValueError(
            f"algorithm {request.algorithm!r} needs connections between the workers, and with "
            f"dedicated aggregators there are none: use {', '.join(sorted(_OWNER_ALGORITHMS))}"
        )


def call_arguments(request: Request, given: SparseInput) -> dict[str, Any]:
    """What the engine's `submit_sparse` takes for a request, but for the timeout."""
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
        "collective": COLLECTIVES[request.collective],
        "algorithm": ALGORITHMS[request.algorithm],
        "root": request.root,
        "unit": given.pieces,
        "segment_codec": segment_codec,
        "result_codec": result_codec,
        "seed": request.seed,
        "target": 0 if request.out is None else _target(request.out, given),
        "form": FORMS[request.result],
    }


def _target(out: Any, given: SparseInput) -> int:
    target = view(out, writable=True)
    check_apart(target, given.values.pointer, given.values.nbytes)
    check_apart(target, given.indices.ctypes.data, given.indices.nbytes)
    size = given.length * given.width
    if (target.dtype, target.size) != (given.values.dtype, size):
        raise ValueError(
            f"out must be a dense array of {size} elements of {dtype_name(given.values.dtype)}, "
            f"not {target.size} of {dtype_name(target.dtype)}"
        )
    return target.pointer


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
