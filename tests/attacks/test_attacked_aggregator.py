"""A job goes on, and memory stays bounded, while strangers attack its aggregator."""

from __future__ import annotations

import aggregator as siege
import pytest
from strangers import STRIKES
from support import serving

ANSWERS = {
    "garbage": b"frame: unknown kind",
    "garbage behind a hello": b"frame: unknown kind",
    "cancels": b"wait for other ranks to catch up",
    "cancels far away": b"is too far ahead",
    "refuses": b"wait for other ranks to catch up",
    "window of 1 GiB": b"--max-window",
    "many ranks": b"--job-memory",
    "opens without segments": b"open: beyond the window",
    "promise of nothing": b"segment: its operation is not open",
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_strike_gets_through_and_is_answered(kind: str) -> None:
    with serving() as server:
        (worker,) = STRIKES[kind](server.address)
        with worker:
            worker.settimeout(30)
            said = b""
            while ANSWERS[kind] not in said:
                part = worker.recv(1 << 16)
                assert part, said[-600:]
                said += part


@pytest.mark.timeout(120)
def test_job_goes_on_and_memory_is_bounded_under_attack() -> None:
    outcome = siege.besiege(seconds=4, window=2)
    assert outcome.strikes >= len(STRIKES)
    assert outcome.growth < 64, outcome
