"""The all_reduces under test behind one small face: bind a case's data once, then call.

Those of torch are in torch_backends.py, which is imported where a job asks for them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Protocol

import numpy as np

import sparsewire
from sparsewire import SparseVector
from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.case_data import CaseData
from sparsewire.tools.bench.job import Job, algorithm_of, needs_torch
from sparsewire.tools.bench.patterns import Array
from sparsewire.tools.measure.prediction import Prediction, predict

# Algorithms that do not add in the order of the ranks.
_UNORDERED = {"ssar_recursive_double", "ring"}


class Check(Enum):
    """The check of a result against the expected one."""

    bits = "all its bits"
    tolerance = "its value, but for sums in another order or with less precision"
    fixed_point = "its value, but for the error of fixed point, and the bits of other ranks"


def ordered(job: Job) -> Check:
    """The check of sums that are made in the order of the ranks."""
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


def ranks_together(backends: Iterable[Backend], ranks: int) -> int:
    """Ranks that are added up before others: those of a host, where there are several hosts."""
    hosts = next((backend.hosts for backend in backends if backend.hosts is not None), ranks)
    return ranks // hosts if hosts > 1 else 1


@contextmanager
def opened(job: Job) -> Iterator[dict[str, Backend]]:
    """The job's backends, which end with the block; every rank opens them in the same order.

    The sparsewire ones share a communicator. It comes first: torch's store would hold its port.
    Raises ExperimentError for a backend that is unknown.
    """
    of_torch = list(filter(needs_torch, job.backends))
    ours = {name: _known(name) for name in job.backends if name not in of_torch}
    found: dict[str, Backend] = {}
    with ExitStack() as stack:
        if ours:
            init = sparsewire.init(lanes=job.lanes, timeout=job.timeout)
            communicator = stack.enter_context(init)
            found |= {name: SparsewireBackend(communicator, job, how) for name, how in ours.items()}
        if of_torch:
            from sparsewire.tools.bench.torch_backends import opened_by_torch

            found |= stack.enter_context(opened_by_torch(of_torch, job))
        yield {name: found[name] for name in job.backends}


def _known(backend: str) -> str:
    """The algorithm that a name of ours means."""
    algorithm = algorithm_of(backend)
    if algorithm is None:
        raise ExperimentError(
            f"backend {backend!r} is unknown; use gloo, gloo-sparse, sparsewire or sparsewire-torch"
        )
    return algorithm
