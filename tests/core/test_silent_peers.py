"""Ranks and aggregators that stop without a word: noticed, named, lost in time, or back in time."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from freezing import (
    KINDS,
    LENGTH,
    await_frozen,
    call,
    freeze_self,
    freeze_soon,
    inputs,
    state_of,
    thaw,
)
from meeting import MEETING_PLACE, meet, tell, wait_for
from support import environment_of, run_ranks, serving

import sparsewire
from sparsewire.options import Options


def settings(transport_environment: dict[str, str], peer_timeout: float) -> dict[str, str]:
    return {**transport_environment, "SPARSEWIRE_PEER_TIMEOUT": str(peer_timeout)}


def outlive(victim: int, kind: str) -> tuple[Exception, Any, list[str]] | None:
    """Rank `victim` freezes for good; what the others raise, their status then, and their log."""
    with sparsewire.init() as comm, logged() as lines:
        call(comm, kind, inputs(comm, kind, 0))
        # A rank has its own result before the others have what it owes them.
        meet("the first has ended")
        if comm.rank == victim:
            freeze_self()
            return None
        await_frozen(victim)
        try:
            for step in range(1, 1000):
                call(comm, kind, inputs(comm, kind, step))
        except sparsewire.Error as error:
            failure = error
        status = comm.status()
        tell("raised")
        if comm.rank == (victim + 1) % comm.world_size:
            wait_for("raised", set(range(comm.world_size)) - {victim})
            thaw(victim)
        return failure, status, lines


@contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("sparsewire").addHandler(handler)
    yield lines
    logging.getLogger("sparsewire").removeHandler(handler)


@pytest.mark.matrix
@pytest.mark.chaos
@pytest.mark.parametrize("transport", ["colocated", "colocated-3-lanes", "dedicated"])
@pytest.mark.parametrize(("kind", "victim"), [("dense", 0), ("sparse", 1), ("large", 2)])
def test_frozen_rank_is_named_on_all_others(transport: str, kind: str, victim: int) -> None:
    with environment_of(transport) as environment:
        results = run_ranks(3, outlive, victim, kind, environment=settings(environment, 2))
    for rank in {0, 1, 2} - {victim}:
        error, status, lines = results[rank]
        assert isinstance(error, sparsewire.PeerLost), error
        assert error.rank == victim
        assert f"lost rank {victim}: no sign of life for 2." in str(error)
        assert status["failure"] in str(error)
        assert any(f"no sign of life from rank {victim}" in line for line in lines), lines
        assert any("(operation " in line for line in lines), lines


def time_out(victim: int) -> Exception | None:
    with sparsewire.init() as comm:
        x = inputs(comm, "reader", 0)
        meet("connected")
        if comm.rank == victim:
            freeze_soon(0.05)
        try:
            for _ in range(100):
                comm.all_reduce(x, timeout=4)
        except sparsewire.Error as error:
            failure = error
        if comm.rank == victim:
            return None
        tell("raised")
        if comm.rank == (victim + 1) % comm.world_size:
            wait_for("raised", set(range(comm.world_size)) - {victim})
            thaw(victim)
        return failure


@pytest.mark.chaos
def test_timeout_names_the_reader_that_stopped_and_not_the_owner_that_waits_for_it() -> None:
    results = run_ranks(3, time_out, 2, environment=settings({}, 30), deadline_s=60)
    for error in results[:2]:
        assert isinstance(error, sparsewire.Timeout), error
        assert "nothing more came from rank(s) 2" in str(error)


def wait_for_silence(victim: int) -> dict[str, Any] | None:
    """What `status` says of a rank that is frozen while one collective waits for it."""
    with sparsewire.init() as comm:
        comm.barrier()
        meet("the barrier has ended")
        if comm.rank == victim:
            freeze_self()
            comm.all_reduce(np.ones(10))
            return None
        await_frozen(victim)
        work = comm.all_reduce(np.ones(10), async_op=True)
        deadline = time.monotonic() + 20
        while not (status := comm.status())["silent"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        tell("seen")
        if comm.rank == (victim + 1) % comm.world_size:
            wait_for("seen", set(range(comm.world_size)) - {victim})
            thaw(victim)
        assert work.wait()[0] == comm.world_size
        assert comm.status()["in_flight"] == 0
        return status


@pytest.mark.chaos
@pytest.mark.parametrize("transport", ["colocated", "dedicated"])
def test_status_names_the_silent_rank_and_the_operation(transport: str) -> None:
    with environment_of(transport) as environment:
        statuses = run_ranks(3, wait_for_silence, 1, environment=settings(environment, 10))
    for status in (statuses[0], statuses[2]):
        assert status is not None
        assert list(status["silent"]) == [1]
        assert status["silent"][1] >= 2
        assert (status["op"], status["seq"], status["in_flight"]) == ("all_reduce", 1, 1)
        assert status["failure"] is None


def be_frozen_for_a_while(victim: int, seconds: float, kind: str) -> list[bytes]:
    """The bits of collectives during which rank `victim` freezes, shorter than the patience."""
    with sparsewire.init() as comm:
        results = []
        for step in range(6):
            if step == 3 and seconds:
                # Who shall thaw the other must not wait for what that one owes it.
                meet("the first half has ended")
                if comm.rank == victim:
                    freeze_self()
                elif comm.rank == (victim + 1) % comm.world_size:
                    await_frozen(victim)
                    time.sleep(seconds)
                    thaw(victim)
            result = call(comm, kind, inputs(comm, kind, step))
            parts = result if isinstance(result, list) else [result]
            results += [bits_of(part) for part in parts]
        return results


def bits_of(result: Any) -> bytes:
    if isinstance(result, sparsewire.SparseVector):
        return bytes(np.asarray(result.indices).tobytes() + np.asarray(result.values).tobytes())
    return bytes(result.tobytes())


@pytest.mark.matrix
@pytest.mark.chaos
@pytest.mark.parametrize("transport", ["colocated", "dedicated"])
@pytest.mark.parametrize("kind", KINDS)
def test_rank_that_thaws_in_time_goes_on_with_the_same_bits(transport: str, kind: str) -> None:
    link = {"SPARSEWIRE_LINK": "5e-5,1e-9,4e-9"}
    with environment_of(transport) as environment:
        frozen, steady = (
            run_ranks(
                3,
                be_frozen_for_a_while,
                1,
                seconds,
                kind,
                environment={**settings(environment, 4), **link},
            )
            for seconds in (2.5, 0.0)
        )
    assert frozen == steady
    assert frozen[0] == frozen[1] == frozen[2]


def hold_the_interpreter(victim: int) -> float:
    """One rank computes without ever giving the GIL away, far beyond the patience."""
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == victim:
            # One call into C that keeps the GIL.
            deadline = time.monotonic() + 3.5
            while time.monotonic() < deadline:
                sum(range(20_000_000))
        return float(comm.all_reduce(np.ones(10))[0])


@pytest.mark.parametrize("transport", ["colocated", "dedicated"])
def test_rank_that_holds_the_gil_is_alive(transport: str) -> None:
    with environment_of(transport) as environment:
        environment = settings(environment, 2)
        assert run_ranks(2, hold_the_interpreter, 1, environment=environment) == [2.0, 2.0]


def freeze_all_ranks() -> float:
    """Every rank is stopped for longer than the patience, as by a batch system, and goes on."""
    with sparsewire.init() as comm:
        comm.barrier()
        meet("all ready to stop")
        freeze_self()
        return float(comm.all_reduce(np.ones(10))[0])


def continue_all(directory: str, world_size: int, seconds: float) -> None:
    os.environ[MEETING_PLACE] = directory
    for rank in range(world_size):
        await_frozen(rank)
    time.sleep(seconds)
    for rank in range(world_size):
        thaw(rank)


@pytest.mark.chaos
def test_job_that_was_stopped_as_a_whole_goes_on(tmp_path: Path) -> None:
    other = multiprocessing.Process(target=continue_all, args=(str(tmp_path), 3, 4.0))
    other.start()
    try:
        environment = {"SPARSEWIRE_PEER_TIMEOUT": "2", MEETING_PLACE: str(tmp_path)}
        assert run_ranks(3, freeze_all_ranks, environment=environment) == [3.0, 3.0, 3.0]
    finally:
        other.kill()
        other.join()


def serve_apart(pipe: Connection) -> None:
    with serving() as server:
        pipe.send(str(server.address))
        pipe.recv()


@contextmanager
def aggregator_process() -> Iterator[tuple[int, str]]:
    """Process id and address of an aggregator that can be frozen."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("forkserver").Process(target=serve_apart, args=(theirs,))
    process.start()
    try:
        assert process.pid is not None
        yield process.pid, ours.recv()
    finally:
        process.kill()
        process.join()


def lose_aggregator(pid: int) -> Exception:
    with sparsewire.init() as comm:
        comm.barrier()
        meet("connected")
        if comm.rank == 0:
            os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(1000):
                comm.all_reduce(np.ones(10), timeout=math.inf)
        except sparsewire.Error as error:
            return error
    raise AssertionError("nothing was lost")


@pytest.mark.chaos
def test_frozen_aggregator_is_named() -> None:
    with aggregator_process() as (pid, address):
        environment = settings({"SPARSEWIRE_AGGREGATORS": address}, 2)
        for error in run_ranks(2, lose_aggregator, pid, environment=environment):
            assert isinstance(error, sparsewire.PeerLost)
            assert error.rank == -1
            assert f"lost aggregator {address}: no sign of life" in str(error)


def vanish() -> None:
    comm = sparsewire.init()
    comm.all_reduce(np.ones(LENGTH, np.float32))
    meet("all here")
    freeze_self()


@pytest.mark.chaos
def test_aggregator_forgets_a_job_whose_hosts_vanish(tmp_path: Path) -> None:
    with serving() as server:
        environment = settings({"SPARSEWIRE_AGGREGATORS": str(server.address)}, 1)
        environment[MEETING_PLACE] = str(tmp_path)
        ranks = threading.Thread(
            target=run_ranks, args=(2, vanish), kwargs={"environment": environment}
        )
        ranks.start()
        pids = [tmp_path / f"pid-{rank}" for rank in range(2)]
        deadline = time.monotonic() + 30
        while not all(pid.exists() for pid in pids) or server.jobs or server.stats()["jobs"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # Their sockets are still open, so only the clock could tell.
        processes = [int(pid.read_text()) for pid in pids]
        assert [state_of(process) for process in processes] == ["T", "T"]
        for process in processes:
            os.kill(process, signal.SIGCONT)
        ranks.join()


@pytest.mark.parametrize("seconds", [0.5, 0, -1, math.inf, math.nan, 1e9])
def test_peer_timeout_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="SPARSEWIRE_PEER_TIMEOUT must be 1 to 86400 seconds"):
        Options(0, 1, peer_timeout=seconds)


def disagree() -> str:
    os.environ["SPARSEWIRE_PEER_TIMEOUT"] = str(5 + int(os.environ["RANK"]))
    with pytest.raises(sparsewire.MismatchError) as error:
        sparsewire.init()
    return str(error.value)


def test_ranks_must_agree_on_the_peer_timeout() -> None:
    for text in run_ranks(2, disagree):
        assert "ranks disagree on peer timeout" in text
