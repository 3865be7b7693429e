"""The all_reduces under test behind one small face: bind a case's data once, then call."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

import sparsewire
from sparsewire import SparseVector
from sparsewire.bench.case_data import CaseData
from sparsewire.bench.job import OTHERS, Job, algorithm_of
from sparsewire.bench.patterns import Array
from sparsewire.errors import ExperimentError
from sparsewire.measure.prediction import Prediction, predict
from sparsewire.measure.wire_limit import coo_gather_bytes, ring_bytes

# Those that add in another order than that of the ranks.
_UNORDERED = {"ssar_recursive_double", "ring"}


class Check(Enum):
    """What a result must have in common with the expected one."""

    bits = "all its bits"
    tolerance = "its value, but for sums in another order or with less precision"
    fixed_point = "its value, but for the error of fixed point, and the bits of other ranks"


def ordered(job: Job) -> Check:
    """What sums must have that are made in the order of the ranks."""
    return Check.fixed_point if job.in_fixed_point else Check.bits


@dataclass(frozen=True)
class Call:
    """One call that can be repeated. Only `run` is timed."""

    prepare: Callable[[], object]
    """Makes the input, or what the result overwrites, as it was."""
    run: Callable[[], object]
    result: Callable[[], Array]
    """The last run's result as a dense vector of shape (elements,)."""
    check: Check = Check.tolerance
    prediction: Prediction | None = None


def in_place(buffer: Array, given: Array, reduce: Callable[[], object], check: Check) -> Call:
    """Reduces a dense buffer, which is filled with what is given."""
    return Call(lambda: np.copyto(buffer, given), reduce, lambda: buffer, check)


def of_vector(
    reduce: Callable[[], object], out: Array | None, prediction: Prediction, check: Check
) -> Call:
    """Reduces a sparse vector, which stays as it is; the result is new, or goes into `out`."""
    result: list[object] = [None]

    def prepare() -> None:
        # Nothing of an earlier call may look like a result.
        result[0] = None
        if out is not None:
            out.fill(1)

    def run() -> None:
        result[0] = reduce()

    return Call(prepare, run, lambda: _as_dense(result[0]), check, prediction)


def of_coo_tensor(vector: SparseVector, reduce: Callable[[torch.Tensor], object]) -> Call:
    """Reduces a sparse_coo tensor in place with torch.distributed; each time it is made anew."""
    given = torch.sparse_coo_tensor(
        torch.from_numpy(vector.indices.astype(np.int64))[None],
        torch.from_numpy(vector.values),
        vector.shape,
        is_coalesced=True,
        check_invariants=False,
    )
    tensor = [given]

    def prepare() -> None:
        tensor[0] = given.clone()

    return Call(prepare, lambda: reduce(tensor[0]), lambda: tensor[0].to_dense().numpy())


def _as_dense(result: object) -> Array:
    if isinstance(result, SparseVector):
        return result.to_dense()
    assert isinstance(result, np.ndarray)
    return result


class Backend(Protocol):
    """One implementation of all_reduce on this rank."""

    hosts: int | None
    """Hosts whose ranks it adds up first, as many as ranks where it adds rank by rank; None where
    it has no order of its own."""

    def bind(self, data: CaseData, buffer: Array) -> Call:
        """A call that reduces the data; where it is dense, in this buffer."""

    def counted_bytes_sent(self) -> int | None:
        """Bytes sent so far as the backend counts them; None where it does not."""

    def close(self) -> None: ...


def as_tensor(buffer: Array) -> torch.Tensor:
    """A tensor over the same memory; NumPy knows bfloat16 only as a foreign type."""
    if buffer.dtype.name == "bfloat16":
        return torch.from_numpy(buffer.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(buffer)


class GlooBackend:
    """torch.distributed's gloo group, the default group of the worker.

    Reduces dense tensors or, by its own all_reduce of those, sparse_coo tensors.
    """

    hosts: int | None = None

    def __init__(self, op: str, *, sparse: bool) -> None:
        self._average = op == "avg"
        self._op = getattr(dist.ReduceOp, "SUM" if self._average else op.upper())
        self._sparse, self._ranks, self._sent = sparse, dist.get_world_size(), 0

    def bind(self, data: CaseData, buffer: Array) -> Call:
        if self._sparse:
            assert data.vector is not None
            sends = coo_gather_bytes(data.vector.nnz, buffer.itemsize, self._ranks)
            return of_coo_tensor(data.vector, partial(self._reduce, sends))
        sends = round(ring_bytes(buffer.nbytes, self._ranks))
        reduce = partial(self._reduce, sends, as_tensor(buffer))
        return in_place(buffer, data.dense, reduce, Check.tolerance)

    def _reduce(self, sends: int, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, self._op)
        if self._average:
            # Gloo has no average, so its users divide.
            tensor.div_(self._ranks)
        self._sent += sends

    def counted_bytes_sent(self) -> int:
        """What its algorithm sends by design, for gloo does not count."""
        return self._sent

    def close(self) -> None:
        """The default group also aligns the ranks, so the worker closes it."""


class SparsewireBackend:
    """A sparsewire communicator on dense arrays, or on sparse vectors with one algorithm."""

    def __init__(self, communicator: sparsewire.Communicator, job: Job, algorithm: str) -> None:
        self._communicator, self._algorithm = communicator, algorithm
        self.hosts: int | None = communicator.hosts
        names = job.precision.split(",") if job.precision else []
        self._check = Check.tolerance if names else ordered(job)
        precision: Any = names[0] if len(names) == 1 else tuple(names) or None
        self._reduce = partial(communicator.all_reduce, op=job.op, precision=precision)

    def bind(self, data: CaseData, buffer: Array) -> Call:
        if data.vector is None:
            return in_place(buffer, data.dense, partial(self._reduce, buffer), self._check)
        link, hosts = self._communicator.link, self.hosts
        size = (len(buffer), buffer.itemsize)
        prediction = predict(link, self._algorithm, *size, data.named, hosts)
        out = buffer if data.into_dense else None
        reduce = partial(
            self._reduce,
            data.vector,
            out=out,
            algorithm=self._algorithm,
            result="dense" if data.into_dense else "sparse",
        )
        unordered = _UNORDERED if hosts == len(data.named) else {*_UNORDERED, "allgather"}
        check = Check.tolerance if prediction.chosen in unordered else self._check
        return of_vector(reduce, out, prediction, check)

    def counted_bytes_sent(self) -> int | None:
        return self._communicator.stats()["bytes_sent"]

    def close(self) -> None:
        self._communicator.close()


class TorchBackend:
    """sparsewire as a process group of torch.distributed, as training scripts call it.

    Sparse vectors are sparse_coo tensors, with indices of 64 bits, which are reduced in place.
    """

    def __init__(self, job: Job) -> None:
        from sparsewire.torch.backend import member_of

        self._group: Any = dist.new_group(backend="sparsewire")
        member = member_of(self._group)
        assert member is not None
        self.hosts: int | None = member.communicator.hosts
        self._reduce = partial(
            dist.all_reduce, op=getattr(dist.ReduceOp, job.op.upper()), group=self._group
        )
        self._check = ordered(job)

    def bind(self, data: CaseData, buffer: Array) -> Call:
        if data.vector is not None:
            return of_coo_tensor(data.vector, self._reduce)
        return in_place(buffer, data.dense, partial(self._reduce, as_tensor(buffer)), self._check)

    def counted_bytes_sent(self) -> int | None:
        return None

    def close(self) -> None:
        dist.destroy_process_group(self._group)


def ranks_together(backends: Iterable[Backend], ranks: int) -> int:
    """Ranks that are added up before others: those of a host, where there are several hosts."""
    hosts = next((backend.hosts for backend in backends if backend.hosts is not None), ranks)
    return ranks // hosts if hosts > 1 else 1


def open_backends(job: Job, store: Store) -> dict[str, Backend]:
    """Open the job's backends; every rank must do so in the same order.

    The sparsewire ones share a communicator, which meets its peers through the same store as gloo.
    """

    @cache
    def connect() -> sparsewire.Communicator:
        place, rank, size = PrefixStore("sparsewire", store), dist.get_rank(), dist.get_world_size()
        return sparsewire.init(
            place, rank=rank, world_size=size, lanes=job.lanes, timeout=job.timeout
        )

    return {name: _open(name, job, connect) for name in job.backends}


def _open(name: str, job: Job, connect: Callable[[], sparsewire.Communicator]) -> Backend:
    algorithm = algorithm_of(name)
    if algorithm is not None:
        return SparsewireBackend(connect(), job, algorithm)
    if name in OTHERS:
        return GlooBackend(job.op, sparse=name == "gloo-sparse")
    if name == "sparsewire-torch":
        return TorchBackend(job)
    raise ExperimentError(
        f"backend {name!r} is unknown; use gloo, gloo-sparse, sparsewire or sparsewire-torch"
    )
