"""Sparse collectives of 40 ranks, whose joins climb a tree: results, and errors on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from meeting import tell, wait_for
from sparse_failing import PEER_ALGORITHMS, collectives_of, error_of, vector
from support import run_ranks

import sparsewire
from sparsewire import Communicator, SparseVector

RANKS = 40
ODD = 23  # The rank that does something else than the others; no neighbour of 39.

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(300)]


def own_vector(rank: int, length: int) -> SparseVector:
    """One element that every rank has, and one of this rank's own."""
    return SparseVector(np.array([0, 1 + rank]), np.array([1, rank], np.float32), length)


def sum_of_all(length: int) -> np.ndarray:
    return sum(own_vector(rank, length).to_dense() for rank in range(RANKS))  # type: ignore[return-value]


def works(comm: Communicator) -> None:
    for length in (100, 100_000):
        x = own_vector(comm.rank, length)
        for algorithm in ["auto", *PEER_ALGORITHMS]:
            result = comm.all_reduce(x, algorithm=algorithm, result="dense")
            assert np.array_equal(result, sum_of_all(length))
        gathered = comm.all_gather(x)
        wanted = [own_vector(rank, length).to_dense() for rank in range(RANKS)]
        assert all(np.array_equal(a.to_dense(), b) for a, b in zip(gathered, wanted, strict=True))
        sent = comm.broadcast(x, root=ODD)
        assert np.array_equal(sent.to_dense(), wanted[ODD])


def fail(comm: Communicator) -> dict[str, Exception]:
    is_odd = comm.rank == ODD
    calls: dict[str, Any] = {
        "length": lambda: comm.all_reduce(vector(100_001 if is_odd else 100_000)),
        "dense": lambda: comm.all_reduce(vector().to_dense() if is_odd else vector()),
        "root": lambda: comm.broadcast(vector(), root=int(is_odd)),
        "collective": lambda: collectives_of(vector())["reduce" if is_odd else "all_gather"](
            comm
        ).wait(60),
    }
    return {name: error_of(call) for name, call in calls.items()}


def disagree() -> dict[str, Exception]:
    with sparsewire.init() as comm:
        works(comm)
        errors = fail(comm)
        works(comm)
        return errors


def test_ranks_agree_and_disagree() -> None:
    for errors in run_ranks(RANKS, disagree, deadline_s=240):
        for what, error in errors.items():
            assert isinstance(error, sparsewire.MismatchError), (what, error)
            assert f"rank {ODD} " in str(error), (what, error)


def refuse() -> Exception:
    with sparsewire.init() as comm:
        bad = SparseVector(np.array([7, 7]), np.ones(2, np.float32), 100_000)
        error = error_of(lambda: comm.reduce(bad if comm.rank == ODD else vector()))
        works(comm)
        return error


def test_refused_input_fails_on_every_rank() -> None:
    for error in run_ranks(RANKS, refuse, deadline_s=240):
        assert isinstance(error, sparsewire.InputError)
        assert f"rank {ODD}" in str(error)


def be_late(impatient: int, is_behind: bool) -> Exception | None:
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == ODD:
            wait_for("given up", set(range(RANKS)) - {ODD})
            return None
        timeout = 1 if comm.rank == impatient else 200
        if is_behind:
            comm.all_gather(vector(), async_op=True, timeout=200)
            error = error_of(lambda: comm.all_reduce(vector().to_dense(), timeout=timeout))
        else:
            error = error_of(lambda: comm.all_gather(vector(), timeout=timeout))
        tell("given up")
        return error


@pytest.mark.parametrize("is_behind", [False, True], ids=["itself", "behind it"])
@pytest.mark.parametrize("impatient", [0, 39])
def test_late_rank_is_named_though_it_is_no_neighbour(impatient: int, is_behind: bool) -> None:
    errors = run_ranks(RANKS, be_late, impatient, is_behind, deadline_s=240)
    for rank, error in enumerate(errors):
        if rank == ODD:
            continue
        assert isinstance(error, sparsewire.Timeout)
        assert f"rank(s) {ODD}" in str(error), error
