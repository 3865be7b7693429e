"""What tests of sparse collectives that fail share: vectors and calls, and a failure among others
that must not fail with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import sparsewire
from sparsewire import Communicator, SparseVector, Work

LENGTH = 100_000
OFFENDER = 1  # The rank that does something else than the others.
PEER_ALGORITHMS = ["ssar_recursive_double", "ring", "allgather"]
OWNER_ALGORITHMS = ["auto", "stream", "ssar_split_allgather", "dsar_split_allgather"]

Call = Callable[[Communicator], Any]


def vector(length: int = LENGTH, dtype: Any = np.float32, row: int | None = None) -> SparseVector:
    indices = np.arange(0, length, 7)
    shape = (len(indices),) if row is None else (len(indices), row)
    return SparseVector(indices, np.ones(shape, dtype), length)


def good_works(comm: Communicator) -> list[Work]:
    """Collectives of several kinds that must be unharmed by a bad one among them."""
    return [
        comm.all_reduce(vector(), async_op=True, algorithm="stream", result="dense"),
        comm.all_reduce(vector(), async_op=True, result="dense"),
        comm.all_reduce(vector().to_dense(), async_op=True),
        comm.all_reduce(vector(), async_op=True, algorithm="dsar_split_allgather", result="dense"),
    ]


def fail_among_others(comm: Communicator, call: Call) -> Exception:
    """The error of a call with good collectives in flight, of before it and behind it."""
    before = good_works(comm)
    failed = call(comm)
    after = good_works(comm)
    error = error_of(lambda: failed.wait(30))
    wanted = (vector().to_dense() * comm.world_size).tobytes()
    assert [work.wait(30).tobytes() for work in before + after] == [wanted] * 8
    return error


def error_of(act: Callable[[], Any]) -> Exception:
    try:
        act()
    except sparsewire.Error as error:
        return error
    raise AssertionError("it did not fail")


def collectives_of(x: SparseVector) -> dict[str, Call]:
    return {
        "all_gather": lambda comm: comm.all_gather(x, async_op=True),
        "reduce_scatter": lambda comm: comm.reduce_scatter(x, async_op=True),
        "reduce": lambda comm: comm.reduce(x, root=OFFENDER, async_op=True),
        "broadcast": lambda comm: comm.broadcast(x, root=OFFENDER, async_op=True),
    }
