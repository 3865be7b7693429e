"""Positions that follow a power law, as words and users do, load all owners alike."""

from __future__ import annotations

import numpy as np
import pytest
from support import run_ranks

import sparsewire
from sparsewire import SparseVector

LENGTH = 1_000_000
EXPONENT = 1.1


def zipf_positions(
    rank: int, length: int, draws: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Position k is drawn with a probability that falls like k ** -EXPONENT."""
    drawn = np.random.default_rng(rank).zipf(EXPONENT, 4 * draws) - 1
    return np.unique(drawn[drawn < length][:draws])


def count_bytes(length: int, draws: int, row: int | None) -> list[tuple[int, int]]:
    """Bytes sent and received by this rank, of each of four sums."""
    counted = []
    with sparsewire.init() as comm:
        indices = zipf_positions(comm.rank, length, draws)
        assert np.mean(indices < length // 4) > 0.6  # Equal stretches would load the first owner.
        shape = (len(indices),) if row is None else (len(indices), row)
        x = SparseVector(indices, np.ones(shape, np.float32), length)
        for _ in range(4):
            comm.barrier()
            comm.engine.start_counting()
            comm.all_reduce(x, algorithm="stream")
            comm.barrier()
            counters = comm.stats()
            counted.append((counters["bytes_sent"], counters["bytes_received"]))
    return counted


@pytest.mark.matrix
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(("length", "draws", "row"), [(LENGTH, 100_000, None), (20_000, 3000, 64)])
@pytest.mark.parametrize("world_size", [4, 8])
def test_no_owner_is_hot(
    world_size: int, length: int, draws: int, row: int | None, lanes: int
) -> None:
    environment = {"SPARSEWIRE_LANES": str(lanes)}
    counted = run_ranks(world_size, count_bytes, length, draws, row, environment=environment)
    by_rank = np.array(counted, float)  # ranks x sums x (sent, received)
    assert (by_rank.max(axis=0) <= 1.2 * by_rank.mean(axis=0)).all(), by_rank
