"""Forked children: they disturb nobody, hide nobody's death, and are told what is not theirs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from meeting import meet, tell, wait_for
from support import environment_of, run_ranks

import sparsewire

# Far below what any of the tests waits for otherwise, and far above what a busy machine needs.
CHILD_LIMIT_S = 20.0
TRANSPORTS = ["colocated-3-lanes", "dedicated"]


def forked(act: Callable[[], None]) -> int:
    """Run `act` in a forked child, which then ends well; returns its process id."""
    child = os.fork()
    if child == 0:
        # Where it hangs it is killed.
        signal.alarm(int(CHILD_LIMIT_S))
        act()
        os._exit(0)
    return child


def status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def total(communicator: sparsewire.Communicator, size: int = 100_000) -> float:
    return float(communicator.all_reduce(np.ones(size, np.float32))[0])


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except sparsewire.Error as error:
        return f"belongs to the parent process {os.getppid()}" in str(error)
    return False


def use_in_child() -> float:
    communicator = sparsewire.init()
    meet("connected")
    work = communicator.all_reduce(np.ones(100_000, np.float32), async_op=True)
    late = threading.Thread(target=work.wait)
    late.start()

    def act() -> None:
        array = np.ones(3)
        uses = [
            lambda: communicator.all_reduce(array),
            lambda: communicator.all_reduce(array, async_op=True),
            lambda: communicator.all_reduce(sparsewire.SparseVector.from_dense(array)),
            lambda: communicator.abort("no"),
            lambda: work.add_done_callback(print),
            communicator.stats,
            communicator.barrier,
            work.wait,
        ]
        outcomes = [refused(use) for use in uses]
        communicator.close()
        os._exit(0 if all(outcomes) else 1)

    assert status_of(forked(act)) == 0
    late.join()
    work.wait()
    with communicator:
        return total(communicator)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_use_in_a_child_is_refused_and_harms_nobody(transport: str) -> None:
    with environment_of(transport) as environment:
        assert run_ranks(2, use_in_child, environment=environment) == [2.0, 2.0]


def leave() -> None:
    os._exit(0)


def return_normally() -> None:
    pass


def exit_early() -> None:
    sys.exit(0)


def fork_with_multiprocessing(act: Callable[[], None]) -> int:
    child = multiprocessing.get_context("fork").Process(target=act)
    child.start()
    child.join(CHILD_LIMIT_S)
    assert child.exitcode is not None
    return child.exitcode


def end_children() -> list[float]:
    communicator = sparsewire.init()
    finished = threading.Event()
    # A callback pool with threads of its own, which no child may wait for.
    communicator.all_reduce(np.ones(5), async_op=True).add_done_callback(lambda _: finished.set())
    assert finished.wait(CHILD_LIMIT_S)
    totals = []
    for ending in (leave, return_normally, exit_early):
        in_flight = communicator.all_reduce(np.ones(1_000_000, np.float32), async_op=True)
        assert fork_with_multiprocessing(ending) == 0
        totals += [float(in_flight.wait()[0]), total(communicator)]
    communicator.close()
    return totals


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_children_end_and_the_parent_goes_on(transport: str) -> None:
    with environment_of(transport) as environment:
        assert run_ranks(2, end_children, environment=environment) == [[2.0] * 6] * 2


def fork_under_load() -> bool:
    """One thread forks while another runs collectives, so that locks are held at the fork."""
    communicator = sparsewire.init()
    stop = np.zeros(1, np.int32)
    children: list[int] = []

    def fork_often() -> None:
        for _ in range(20):
            children.append(status_of(forked(communicator.close)))
        stop[0] = 1

    forking = threading.Thread(target=fork_often)
    forking.start()
    right = True
    while int(communicator.all_reduce(stop.copy())[0]) < communicator.world_size:
        right = right and total(communicator, 10_000) == communicator.world_size
    forking.join()
    communicator.close()
    return right and children == [0] * 20


def test_forks_while_collectives_are_in_flight() -> None:
    assert run_ranks(2, fork_under_load) == [True, True]


def work_until_lost(communicator: sparsewire.Communicator) -> None:
    for _ in range(1_000_000):
        total(communicator, 1000)


def die_with_children_alive() -> tuple[int, float]:
    communicator = sparsewire.init()
    total(communicator)
    if communicator.rank == 1:
        for _ in range(2):
            forked(lambda: wait_for("lost", [0, 2]))
        tell("forked")
        wait_for("waiting", [0, 2])
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for("forked", [1])
    tell("waiting")
    start = time.monotonic()
    with pytest.raises(sparsewire.PeerLost) as lost:
        work_until_lost(communicator)
    tell("lost")
    return lost.value.rank, time.monotonic() - start


def test_death_is_seen_although_forked_children_live() -> None:
    results = run_ranks(3, die_with_children_alive, dying=[1])
    for rank in (0, 2):
        named, seconds = results[rank]
        assert named == 1
        assert seconds < CHILD_LIMIT_S / 2, "seen only when the children ended"


SCRIPT = """
import os, sys
import numpy as np
import sparsewire

communicator = sparsewire.init()
communicator.all_reduce(np.ones(5), async_op=True).add_done_callback(print)
communicator.barrier()
in_flight = communicator.all_reduce(np.ones(1_000_000), async_op=True)
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
in_flight.wait()
communicator.barrier()
communicator.close()
os._exit(0)  # the child's end is what counts
"""


def test_a_child_ends_as_a_script_does(tmp_path: Path) -> None:
    """Through all that Python does at the end: exit handlers, threads, objects let go of."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "SPARSEWIRE_RENDEZVOUS": f"file://{tmp_path}",
            },
        )
        for rank in range(2)
    ]
    try:
        assert [rank.wait(CHILD_LIMIT_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def refused_settings() -> int:
    """How many descriptors more are open after the engine refused its settings."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="window"):
        sparsewire.init()
    return len(os.listdir("/proc/self/fd")) - before


def test_settings_that_the_engine_refuses_leave_no_descriptor_open() -> None:
    assert run_ranks(3, refused_settings, environment={"SPARSEWIRE_WINDOW": "1"}) == [0, 0, 0]
