"""Time limits of any length: what no clock can count is no limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support import environment_of, run_ranks

import sparsewire


def reduce_with(limit: float) -> list[float]:
    with sparsewire.init(timeout=limit) as communicator:
        dense = np.ones((2, 3), np.float32)
        sparse = sparsewire.SparseVector.from_dense(dense[0])
        works = [
            communicator.all_reduce(dense[0], async_op=True),
            communicator.all_reduce(dense[1], async_op=True, timeout=limit),
            communicator.all_reduce(sparse, async_op=True, timeout=limit, result="dense"),
        ]
        return [float(work.wait(limit)[0]) for work in works]


@pytest.mark.parametrize("limit", [1e9, 1e10, 1e30, math.inf])
def test_long_limits_are_none(limit: float) -> None:
    assert run_ranks(2, reduce_with, limit) == [[2.0] * 3] * 2


def reduce_by_default() -> float:
    with sparsewire.init() as communicator:
        return float(communicator.all_reduce(np.ones(3, np.float32))[0])


@pytest.mark.parametrize("transport", ["colocated", "dedicated"])
def test_long_limit_in_the_environment(transport: str) -> None:
    with environment_of(transport) as environment:
        settings = {**environment, "SPARSEWIRE_TIMEOUT": "1e10"}
        assert run_ranks(2, reduce_by_default, environment=settings) == [2.0, 2.0]
