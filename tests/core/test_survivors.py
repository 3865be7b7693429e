"""Ranks that are left after one is killed may meet again, as its error says."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from meeting import meet
from support import run_ranks

import sparsewire

RANKS = 3


def total(comm: sparsewire.Communicator) -> float:
    return float(comm.all_reduce(np.full(1000, comm.rank + 1, np.float32))[0])


def go_on_without(victim: int) -> tuple[float, float, str]:
    comm = sparsewire.init()
    before = total(comm)
    meet("connected")
    if comm.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(sparsewire.PeerLost) as caught, comm:
        total(comm)
    left = [rank for rank in range(RANKS) if rank != caught.value.rank]
    with sparsewire.init(rank=left.index(comm.rank), world_size=len(left)) as again:
        return before, total(again), str(caught.value)


@pytest.mark.chaos
@pytest.mark.parametrize("victim", [0, 2])
def test_those_who_are_left_meet_again(victim: int) -> None:
    told = [each for each in run_ranks(RANKS, go_on_without, victim, dying=[victim]) if each]
    assert [(before, after) for before, after, _ in told] == [(6, 3)] * 2
    for _, _, text in told:
        assert "one that was killed left no error in a log" in text
        assert "have the ranks that are left make a new communicator" in text
