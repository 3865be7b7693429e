"""A job goes on, and memory stays bounded, while strangers attack its aggregator."""

from __future__ import annotations

import aggregator as siege
import pytest
from strangers import STRIKES


@pytest.mark.timeout(120)
def test_job_goes_on_and_memory_is_bounded_under_attack() -> None:
    outcome = siege.besiege(seconds=4, window=2)
    assert outcome.strikes >= len(STRIKES)
    assert outcome.growth < 64, outcome
