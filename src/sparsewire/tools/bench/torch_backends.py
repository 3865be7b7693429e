"""The all_reduces of torch.distributed under test: gloo's, and sparsewire as a process group."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from sparsewire import SparseVector
from sparsewire.tools.bench.backends import Backend, Call, Check, in_place, ordered
from sparsewire.tools.bench.case_data import CaseData
from sparsewire.tools.bench.job import Job
from sparsewire.tools.bench.patterns import Array
from sparsewire.tools.measure.wire_limit import coo_gather_bytes, ring_bytes


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
        """Bytes that gloo's algorithm sends by design, as gloo does not count."""
        return self._sent


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


@contextmanager
def opened_by_torch(names: list[str], job: Job) -> Iterator[dict[str, Backend]]:
    """These backends, in a default group of gloo, which ends with them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=job.timeout))
    try:
        yield {name: _opened(name, job) for name in names}
    finally:
        dist.destroy_process_group()


def _opened(name: str, job: Job) -> Backend:
    if name == "sparsewire-torch":
        return TorchBackend(job)
    return GlooBackend(job.op, sparse=name == "gloo-sparse")
