"""A benchmark's ranks: in step, told the same, and told who is missing; strangers stay outside."""

from __future__ import annotations

import os
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import numpy as np
import pytest
from launched import launched
from support import run_ranks

from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.ranks import Ranks


def tell_numbers() -> tuple[list[list[float]], list[list[int]], bytes]:
    ranks = Ranks.meet(30.0)
    fractions = ranks.gather([ranks.rank + 0.5, 2.0])
    counts = ranks.gather([2**40 + ranks.rank])
    joined = ranks.agree(b"%d" % ranks.rank, b"".join)
    return fractions.tolist(), counts.tolist(), joined


def test_all_are_told_the_same_in_the_order_of_the_ranks(free_port: int) -> None:
    told = run_ranks(3, tell_numbers, environment=launched(free_port))
    fractions = [[0.5, 2.0], [1.5, 2.0], [2.5, 2.0]]
    assert told == [(fractions, [[2**40], [2**40 + 1], [2**40 + 2]], b"012")] * 3


def come_late(after_s: float) -> tuple[float, float]:
    """When this rank came to the barrier, and when it went on, by the machine's clock."""
    ranks = Ranks.meet(30.0)
    if ranks.rank == 1:
        time.sleep(after_s)
    came = time.monotonic()
    ranks.barrier()
    return came, time.monotonic()


def test_a_barrier_waits_for_the_last(free_port: int) -> None:
    came, went = zip(*run_ranks(3, come_late, 0.5, environment=launched(free_port)), strict=True)
    assert min(went) >= max(came)


def miss_rank_2(how: str) -> str:
    ranks = Ranks.meet(1.0)
    if ranks.rank == 2:
        # The others have an answer at once, or after their second.
        time.sleep(3.0 if how == "silent" else 0.0)
        return ""
    with pytest.raises(ExperimentError) as caught:
        ranks.barrier()
    return str(caught.value)


@pytest.mark.parametrize(("how", "says"), [("gone", "is gone"), ("silent", "has not come within")])
def test_who_is_missing_is_named(how: str, says: str, free_port: int) -> None:
    told = run_ranks(3, miss_rank_2, how, environment=launched(free_port))
    assert f"rank 2 {says}" in told[0]


def knock_first() -> list[float]:
    """Rank 1 knocks with another key, and hangs up once in the middle, before it comes."""
    if os.environ["RANK"] == "1":
        address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
        knocked = 0
        while knocked < 2:
            try:
                Client(address, authkey=b"another").close()
            except AuthenticationError:
                Client(address).close()
                knocked += 1
            except OSError:
                time.sleep(0.02)
    rows: np.ndarray = Ranks.meet(30.0).gather([1.0])
    return rows[:, 0].tolist()


def test_strangers_stay_outside(free_port: int) -> None:
    assert run_ranks(2, knock_first, environment=launched(free_port)) == [[1.0, 1.0]] * 2
