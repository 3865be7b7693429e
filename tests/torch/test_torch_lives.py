"""Ranks that torchrun starts again find each other in a store full of their former lives."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from sparsewire.errors import Timeout
from sparsewire.torch.lives import of_this_life

AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
LIMIT = timedelta(seconds=30)


def life(store: dist.Store, size: int, late: random.Random) -> list[bytes]:
    """What each rank reads that all ranks of a life have written under the same key."""

    def rank_(rank: int) -> bytes:
        own = of_this_life(store, rank, size, LIMIT, AGENT)
        if rank == 0:
            own.set("key", f"{late.random()}")
        return own.get("key")

    order = late.sample(range(size), size)
    with ThreadPoolExecutor(size) as ranks:
        return [each.result() for each in [ranks.submit(rank_, rank) for rank in order]]


@pytest.mark.parametrize("seed", range(5))
def test_lives_are_apart(seed: int) -> None:
    late, store = random.Random(seed), dist.HashStore()
    read = [life(store, late.randint(1, 5), late) for _ in range(6)]
    assert all(len(set(each)) == 1 for each in read), seed
    assert len({each[0] for each in read}) == len(read), seed


@pytest.mark.parametrize(("rank", "absent"), [(0, "rank 1"), (1, "rank 0")])
def test_who_is_missing_is_named(rank: int, absent: str) -> None:
    store = dist.HashStore()
    life(store, 2, random.Random(0))
    with pytest.raises(Timeout, match=absent):
        of_this_life(store, rank, 2, timedelta(seconds=0.3), AGENT)


def test_without_an_agent_the_store_is_as_it_was() -> None:
    store = dist.HashStore()
    assert of_this_life(store, 1, 2, LIMIT, {}) is store
