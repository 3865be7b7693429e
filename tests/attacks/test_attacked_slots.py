"""A job by datagrams goes on, and its sums are exact, while a host sends all it has to its
aggregator: forged worker ids, copies, garbage."""

from __future__ import annotations

import pytest
import slots_siege as siege
from support import no_xdp

from sparsewire.tools.lab import available

WHY_NOT = available()


@pytest.mark.lab
@pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("transport", ["udp", "xdp"])
def test_job_takes_nothing_from_strangers(transport: str) -> None:
    if transport == "xdp" and (reason := no_xdp()):
        pytest.skip(reason)
    outcome = siege.besiege(transport, seconds=4, window=0.5, rate=5000)
    assert outcome.strikes > 2000, outcome
    counters = outcome.counters
    assert counters["rejected"] > 100, outcome
    assert outcome.strange > 10, outcome
    assert outcome.rejected_by_rank > 100, outcome
    # All rounds had a contribution of each rank, and no other; the last ones may be unfinished.
    unfinished = counters["contributions"] - siege.RANKS * counters["results"]
    assert 0 <= unfinished <= siege.RANKS * 128, outcome
