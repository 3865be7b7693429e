"""Ctrl-C at a bad moment, callbacks that exit or are many, and limits that are no numbers."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from interrupted import Interrupted
from meeting import tell, wait_for
from support import run_ranks

import sparsewire
from sparsewire import work


def interrupt_between_submit_and_handle() -> bool:
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == 1:
            wait_for("interrupted", [0])
            comm.all_reduce(np.ones(100_000))
            return True
        core, x = comm.engine.core, np.ones(100_000)
        alive = weakref.ref(x)
        comm.engine.core = interrupted = Interrupted(core)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            comm.all_reduce(x)
        comm.engine.core = core
        del x
        gc.collect()
        in_flight_and_alive = not interrupted.operation.done() and alive() is not None
        tell("interrupted")
        interrupted.operation.wait(20.0)
        return in_flight_and_alive and interrupted.operation.failure() is None


def test_ctrl_c_between_submit_and_handle_leaves_the_memory() -> None:
    assert all(run_ranks(2, interrupt_between_submit_and_handle))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("SPARSEWIRE_RENDEZVOUS", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    with sparsewire.init(rank=0, world_size=1) as comm:
        yield comm


def call_back(comm: sparsewire.Communicator, callback: Any) -> None:
    comm.all_reduce(np.ones(10), async_op=True).add_done_callback(lambda _: callback())


def test_callback_that_exits_keeps_no_other_from_running(
    alone: sparsewire.Communicator, caplog: pytest.LogCaptureFixture
) -> None:
    def leave() -> None:
        raise SystemExit(3)

    for _ in range(2 * work.IDLE_MAX):
        call_back(alone, leave)
    called = threading.Event()
    call_back(alone, called.set)
    assert called.wait(20)
    alone.close()
    assert "a callback of a collective raised" in caplog.text


def test_callbacks_wait_where_all_threads_are_in_callbacks(
    alone: sparsewire.Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "THREADS_MAX", 4)
    gate, running, most, left = threading.Event(), set(), [0], threading.Semaphore(0)

    def block() -> None:
        running.add(threading.get_ident())
        most[0] = max(most[0], len(running))
        gate.wait(20)
        running.discard(threading.get_ident())
        left.release()

    for _ in range(12):
        call_back(alone, block)
    named = [t for t in threading.enumerate() if t.name == "sparsewire-callbacks"]
    assert len(named) <= 4
    gate.set()
    for _ in range(12):
        assert left.acquire(timeout=20)
    assert most[0] <= 4


def test_no_callback_runs_behind_close(alone: sparsewire.Communicator) -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        threading.Event().wait(0.3)
        ended.set()

    call_back(alone, work)
    assert begun.wait(20)
    alone.close()
    assert ended.is_set()
    assert not [t for t in threading.enumerate() if t.name == "sparsewire-callbacks"]


@pytest.mark.parametrize("timeout", [1e10, 1e300, math.inf])
def test_limits_beyond_every_clock_are_none(alone: sparsewire.Communicator, timeout: float) -> None:
    work = alone.all_reduce(np.ones(10), timeout=timeout, async_op=True)
    assert work.wait(timeout)[0] == 1


def test_limit_that_is_no_number(alone: sparsewire.Communicator) -> None:
    with pytest.raises(ValueError, match="nan"):
        alone.all_reduce(np.ones(10), timeout=math.nan)
    with pytest.raises(ValueError, match="nan"):
        alone.all_reduce(np.ones(10), async_op=True).wait(math.nan)
