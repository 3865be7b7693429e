"""Ranks of one host that are short of descriptors: they share memory later, or fail by name."""

from __future__ import annotations

import errno
import os
import socket
import threading

import numpy as np
import pytest
from meeting import meet
from refused_calls import become_ordinary, needs_filter, refuse_to_pass_descriptors
from support import run_ranks

import sparsewire

VICTIM = 1


def fail_to_hand_over(error: int) -> Exception | None:
    if int(os.environ["RANK"]) == VICTIM:
        refuse_to_pass_descriptors(error)
    try:
        with sparsewire.init(timeout=30) as comm:
            comm.all_reduce(np.ones(1_000_000, np.float32))
    except sparsewire.Error as failure:
        return failure
    return None


@needs_filter
@pytest.mark.timeout(60)
@pytest.mark.parametrize("lanes", ["1", "3"])
@pytest.mark.parametrize("error", [errno.ETOOMANYREFS, errno.EPERM])
def test_rank_that_cannot_hand_memory_over_is_named_and_told_what_to_do(
    lanes: str, error: int
) -> None:
    environment = {"SPARSEWIRE_LANES": lanes, "SPARSEWIRE_PEER_TIMEOUT": "4"}
    failures = run_ranks(3, fail_to_hand_over, error, environment=environment)
    for rank, failure in enumerate(failures):
        if rank == VICTIM:
            assert isinstance(failure, sparsewire.ResourceError), failure
            assert "SPARSEWIRE_SHARED_MEMORY=0" in str(failure)
        else:
            assert isinstance(failure, sparsewire.Error), failure
            assert not isinstance(failure, sparsewire.Timeout), failure
            assert f"rank {VICTIM}" in str(failure)


def add_up(descriptors: int, elements: int) -> float:
    become_ordinary(descriptors)
    with sparsewire.init() as comm:
        x = np.ones(elements, np.float32)
        for _ in range(3):
            comm.all_reduce(x)
            assert (x == x[0]).all()
            x[:] = x[0] / comm.world_size
        return float(x[0])


def add_up_on_a_busy_host(elements: int) -> float:
    """Rank 0 has more descriptors on their way than the user may, for two seconds."""
    here, there = socket.socketpair()
    if os.environ["RANK"] == "0":
        for _ in range(100):
            socket.send_fds(here, [b"x"], [here.fileno()])
        threading.Timer(2.0, lambda: (here.close(), there.close())).start()
    meet("busy")
    return add_up(90, elements)


@pytest.mark.timeout(120)
def test_memory_is_handed_over_once_the_system_allows_it() -> None:
    assert run_ranks(3, add_up_on_a_busy_host, 500_000, deadline_s=100) == [1.0] * 3


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lanes", ["1", "8"])
def test_64_ranks_of_a_host_with_1024_descriptors_each(lanes: str) -> None:
    environment = {"SPARSEWIRE_LANES": lanes, "SPARSEWIRE_PEER_TIMEOUT": "120"}
    ended = run_ranks(64, add_up, 1024, 4_200_000, deadline_s=280, environment=environment)
    assert ended == [1.0] * 64
