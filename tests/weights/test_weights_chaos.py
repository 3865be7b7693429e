"""Versions of weights through kills, damage and a full disk: tests/weights/chaos_weights.py."""

from __future__ import annotations

import random
from typing import Any

import pytest
from chaos_weights import run


def chaos(versions: int, kills: int, **settings: Any) -> dict[str, Any]:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    return run(versions, kills, seed, **settings)


@pytest.mark.chaos
def test_versions_through_kills() -> None:
    report = chaos(20, 4, pause=0.02)
    assert report["newest"] >= 19
    assert all(report["applied"].values())


@pytest.mark.chaos
@pytest.mark.exhaustive
@pytest.mark.timeout(280)
def test_many_versions_through_kills() -> None:
    report = chaos(300, 30)
    assert report["newest"] >= 299
    assert report["applied as a whole"] < sum(report["applied"].values())
    assert report["bytes from relays"]
