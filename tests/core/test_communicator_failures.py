"""How a communicator fails: with a typed error on every rank, soon, and never by hanging."""

from __future__ import annotations

import os
import re
import signal
import threading
from typing import Any

import numpy as np
import pytest
from meeting import meet, tell, wait_for
from support import run_ranks

import sparsewire


def failure_of(comm: sparsewire.Communicator, *args: Any, **kwargs: Any) -> Exception:
    try:
        comm.all_reduce(*args, **kwargs)
    except sparsewire.Error as error:
        return error
    raise AssertionError("all_reduce did not fail")


def disagree(what: str) -> tuple[Exception, list[float]]:
    with sparsewire.init() as comm:
        odd = comm.rank == 1
        x = np.ones(1001 if odd and what == "size" else 1000, np.float32)
        if odd and what == "dtype":
            x = x.astype(np.float64)
        error = failure_of(comm, x, op="max" if odd and what == "op" else "sum", timeout=20)
        return error, comm.all_reduce(np.ones(2)).tolist()


@pytest.mark.parametrize("what", ["size", "dtype", "op"])
def test_mismatch_on_every_rank_and_then_on(what: str) -> None:
    for error, after in run_ranks(3, disagree, what):
        assert isinstance(error, sparsewire.MismatchError)
        assert str(error)
        assert after == [3.0, 3.0]


def die(victim: int, size: int) -> Exception | None:
    with sparsewire.init() as comm:
        x = np.ones(size, np.float32)
        comm.all_reduce(x)
        meet("the first has ended")
        if comm.rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return failure_of(comm, x, timeout=30)


@pytest.mark.chaos
@pytest.mark.parametrize("victim", [0, 2])
def test_killed_rank_is_named(victim: int) -> None:
    results = run_ranks(3, die, victim, 100_000, dying=[victim])
    for rank in {0, 1, 2} - {victim}:
        error = results[rank]
        assert isinstance(error, sparsewire.PeerLost)
        assert (error.rank, error.op, error.seq) == (victim, "all_reduce", 1)
        assert f"rank {victim}" in str(error)


def leave_early() -> Exception | None:
    comm = sparsewire.init()
    comm.barrier()
    meet("the barrier has ended")
    if comm.rank == 1:
        comm.close()
        return None
    return failure_of(comm, np.ones(10), timeout=20)


def test_rank_that_left_is_named() -> None:
    error, _ = run_ranks(2, leave_early)
    assert isinstance(error, sparsewire.PeerLost)
    assert error.rank == 1


def be_late() -> Exception | None:
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == 1:
            wait_for("given up", [0])
            return None
        error = failure_of(comm, np.ones(10), timeout=0.3)
        tell("given up")
        return error


def test_timeout_names_the_late_rank() -> None:
    error, _ = run_ranks(2, be_late)
    assert isinstance(error, sparsewire.Timeout)
    assert re.search(r"rank\S* 1", str(error))


def wait_shortly() -> float:
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == 1:
            wait_for("given up", [0])
        x = np.ones(10)
        work = comm.all_reduce(x, async_op=True)
        if comm.rank == 0:
            with pytest.raises(sparsewire.Timeout, match=r"has not ended after 0\.1 s"):
                work.wait(0.1)
            tell("given up")
        return float(work.wait(30)[0])


def test_short_wait_leaves_the_collective_in_flight() -> None:
    assert run_ranks(2, wait_shortly) == [2.0, 2.0]


def abort() -> Exception:
    with sparsewire.init() as comm:
        comm.barrier()
        meet("the barrier has ended")
        if comm.rank == 1:
            comm.abort("the loss is not a number")
        return failure_of(comm, np.ones(10), timeout=20)


def test_abort_reaches_every_rank_with_its_reason() -> None:
    for error in run_ranks(3, abort):
        assert "the loss is not a number" in str(error)


def use_after_close() -> Exception:
    comm = sparsewire.init(rank=0, world_size=1)
    comm.close()
    comm.close()
    return failure_of(comm, np.ones(10))


def test_closed_communicator_says_so() -> None:
    assert "closed" in str(use_after_close())


def close_with_work_in_flight() -> tuple[str, bool]:
    comm = sparsewire.init()
    comm.barrier()
    meet("the barrier has ended")
    if comm.rank == 1:
        wait_for("started", [0])
        comm.close()
        return "", True
    called = threading.Event()
    work = comm.all_reduce(np.ones(10), async_op=True)
    work.add_done_callback(lambda _: called.set())
    tell("started")
    comm.close()
    return type(work.exception()).__name__, called.wait(10)


def test_close_releases_every_waiter() -> None:
    (kind, called), _ = run_ranks(2, close_with_work_in_flight)
    assert kind in ("Error", "PeerLost")
    assert called


def interrupt() -> float:
    """Ctrl-C on rank 0 while it waits; the collective goes on, and so does the communicator."""
    with sparsewire.init() as comm:
        comm.barrier()
        x = np.ones(100_000)
        if comm.rank == 1:
            wait_for("interrupted", [0])
            comm.all_reduce(x)
        else:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                comm.all_reduce(x)
            tell("interrupted")
        del x
        return float(comm.all_reduce(np.ones(3))[0])


def test_interrupt() -> None:
    assert run_ranks(2, interrupt) == [2.0, 2.0]
