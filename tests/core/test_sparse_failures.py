"""Sparse collectives that cannot end: ranks that die, that do not come, that give up. Every other
rank gets an error soon that says who it was."""

from __future__ import annotations

import os
import re
import signal
import threading

import numpy as np
import pytest
from meeting import tell, wait_for
from sparse_failing import LENGTH, OFFENDER, error_of, vector
from support import run_ranks

import sparsewire
from sparsewire import SparseVector

ALGORITHMS = ["auto", "stream", "ssar_recursive_double", "ring", "allgather"]

OTHERS = {0, 1, 2} - {OFFENDER}


def let_all_start(comm: sparsewire.Communicator) -> None:
    """Rank OFFENDER goes on once all have come so far; the others need nothing of it for that."""
    work = comm.all_reduce(np.zeros(1), async_op=True)
    if comm.rank == OFFENDER:
        work.wait(30)


def die(algorithm: str, is_in_it: bool) -> list[Exception] | None:
    with sparsewire.init() as comm:
        x = SparseVector(np.arange(900_000), np.ones(900_000, np.float32), 2_000_000)
        let_all_start(comm)
        if comm.rank == OFFENDER:
            if is_in_it:
                comm.all_reduce(x, async_op=True, algorithm=algorithm)
            os.kill(os.getpid(), signal.SIGKILL)
        works = [comm.all_reduce(x, async_op=True, algorithm=algorithm) for _ in range(5)]
        works.append(comm.all_gather(x, async_op=True))
        return [error_of(lambda: works[-1].wait(30)), error_of(lambda: comm.reduce(x))]


@pytest.mark.matrix
@pytest.mark.chaos
@pytest.mark.parametrize("is_in_it", [False, True])
@pytest.mark.parametrize("algorithm", ["auto", "stream", "ssar_recursive_double", "ring"])
def test_killed_rank_is_named(algorithm: str, is_in_it: bool) -> None:
    first, _, third = run_ranks(3, die, algorithm, is_in_it, dying=[OFFENDER])
    for errors in (first, third):
        for error in errors:
            assert isinstance(error, sparsewire.PeerLost)
            assert error.rank == OFFENDER
            assert f"rank {OFFENDER}" in str(error)


def be_late(algorithm: str, length: int) -> Exception | None:
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == OFFENDER:
            wait_for("given up", OTHERS)
            return None
        error = error_of(lambda: comm.all_reduce(vector(length), algorithm=algorithm, timeout=0.3))
        tell("given up")
        return error


@pytest.mark.parametrize(
    ("algorithm", "length"),
    [("auto", 100), ("auto", LENGTH), ("stream", 100), ("stream", LENGTH), ("ring", LENGTH)],
)
def test_timeout_names_the_late_rank(algorithm: str, length: int) -> None:
    first, _, third = run_ranks(3, be_late, algorithm, length)
    for error in (first, third):
        assert isinstance(error, sparsewire.Timeout)
        assert re.search(rf"rank\S* {OFFENDER}\b", str(error)), error


def abort() -> list[str]:
    with sparsewire.init() as comm:
        let_all_start(comm)
        if comm.rank == OFFENDER:
            wait_for("in flight", OTHERS)
            comm.abort("the loss is not a number")
            return [str(error_of(lambda: comm.all_reduce(vector())))]
        works = [
            comm.all_reduce(vector(), async_op=True),
            comm.all_reduce(vector(), async_op=True, algorithm="stream"),
            comm.all_gather(vector(100), async_op=True),
            comm.broadcast(vector(), async_op=True),
        ]
        tell("in flight")
        return [str(error_of(lambda work=work: work.wait(20))) for work in works]


def test_abort_fails_all_that_is_in_flight() -> None:
    for texts in run_ranks(3, abort):
        for text in texts:
            assert "the loss is not a number" in text


def close_with_works_in_flight() -> tuple[list[str], bool]:
    comm = sparsewire.init()
    let_all_start(comm)
    if comm.rank == OFFENDER:
        tell("started")
        wait_for("in flight", OTHERS)
        comm.close()
        return [], True
    # Closing fails what is in flight anywhere, so it has to wait for the offender's own start.
    wait_for("started", [OFFENDER])
    called = threading.Event()
    works = [
        comm.all_reduce(vector(), async_op=True, algorithm=algorithm) for algorithm in ALGORITHMS
    ]
    works[-1].add_done_callback(lambda _: called.set())
    tell("in flight")
    comm.close()
    kinds = [type(work.exception()).__name__ for work in works]
    return kinds, called.wait(10)


def test_close_releases_every_waiter() -> None:
    first, _, third = run_ranks(3, close_with_works_in_flight)
    for kinds, called in (first, third):
        assert set(kinds) <= {"Error", "PeerLost"}
        assert called


def use_after_close() -> list[str]:
    comm = sparsewire.init(rank=0, world_size=1)
    comm.close()
    return [
        str(error_of(act))
        for act in (
            lambda: comm.all_reduce(vector()),
            lambda: comm.all_reduce(vector(), algorithm="stream"),
            lambda: comm.all_gather(vector()),
        )
    ]


def test_closed_communicator_says_so() -> None:
    for text in use_after_close():
        assert "closed" in text
