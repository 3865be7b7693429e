"""What was said to one aggregator is worth nothing at another, on another level, back, or in
another job, whoever sends it there from whatever address: no sum is ever wrong."""

from __future__ import annotations

import pytest
import replays

STRIKES = 3000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("site", ["flat", "racks"])
def test_no_replay_is_taken(site: str) -> None:
    outcome = replays.besiege(getattr(replays, site), STRIKES)
    kinds = {"copy", "aggregator", "direction", "job"} | ({"level"} if site == "racks" else set())
    assert kinds <= outcome.strikes.keys(), outcome
    assert sum(outcome.strikes.values()) >= STRIKES, outcome
    workers = [replays.RANKS] * 2 if site == "flat" else [2, 2, 2]
    for counted, number in zip(outcome.counters, workers, strict=True):
        assert counted["rejected"] > 100, outcome
        # All rounds had a contribution of each worker, and no other; the last may be unfinished.
        unfinished = counted["contributions"] - number * counted["results"]
        assert 0 <= unfinished <= number * 128, outcome
    assert outcome.rejected_by_ranks > 100, outcome
