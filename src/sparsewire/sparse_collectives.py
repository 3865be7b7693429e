"""The sparse collectives: how a call becomes an operation of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsewire._core import ALGORITHMS, COLLECTIVES, FORMS, SparseCall
from sparsewire.arguments import Precision, check_integer, check_seed, codecs, sparse_code
from sparsewire.arrays import check_apart, dtype_name, view
from sparsewire.sparse_input import SparseInput, is_sparse

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


def build_call(request: Request, given: SparseInput) -> SparseCall:
    """The engine's form of a request."""
    call = SparseCall()
    call.indices, call.is_wide = given.indices.ctypes.data, given.indices.itemsize == 8
    call.named, call.values = len(given.indices), given.values.pointer
    call.length, call.row = given.positions, given.row
    call.dtype, call.op = given.values.dtype, sparse_code(request.op, given.values.dtype)
    call.collective = COLLECTIVES[request.collective]
    call.algorithm = ALGORITHMS[request.algorithm]
    call.root, call.unit, call.seed = request.root, given.pieces, request.seed
    call.segment_codec, call.result_codec = codecs(
        request.precision, given.values.dtype, request.op
    )
    call.form = FORMS[request.result]
    if request.out is not None:
        call.target = _target(request.out, given)
    return call


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
