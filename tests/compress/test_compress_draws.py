"""Random draws: each rank has its own, they can be saved, and nobody else's is touched."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from compress_cases import BIASED, UNBIASED

from sparsewire.compress import Draws, RandK, parse

X = np.random.default_rng(0).standard_normal(64)


def keys(draws: Draws) -> list[int]:
    return [draws.key() for _ in range(20)]


def test_the_same_draws_give_the_same_numbers() -> None:
    assert keys(Draws(1, 2, "a")) == keys(Draws(1, 2, "a"))


@pytest.mark.parametrize("other", [Draws(1, 3, "a"), Draws(2, 2, "a"), Draws(1, 2, "b")])
def test_seed_rank_and_name_each_make_other_draws(other: Draws) -> None:
    assert not set(keys(Draws(1, 2, "a"))) & set(keys(other))


def test_workers_draw_different_masks() -> None:
    compressor = RandK(64, 8)
    masks = {tuple(np.flatnonzero(compressor.compress(X, Draws(0, rank)))) for rank in range(20)}
    assert len(masks) == 20


@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_global_generators_are_left_alone(name: str) -> None:
    torch = pytest.importorskip("torch")
    before = np.random.get_state()[1:3], random.getstate(), torch.get_rng_state()
    compressor, draws = parse(name, 64), Draws(4)
    compressor.decode(compressor.encode(X, draws))
    compressor.compress(torch.tensor(X), draws)
    (words, at), state = np.random.get_state()[1:3], random.getstate()
    assert np.array_equal(words, before[0][0])
    assert at == before[0][1]
    assert state == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_restored_draws_go_on_as_the_saved_ones(name: str) -> None:
    compressor, draws = parse(name, 64), Draws(11, 3, "compressor")
    for _ in range(3):
        compressor.encode(X, draws)
    restored = Draws.from_state(json.loads(json.dumps(draws.state())))
    for _ in range(3):
        assert compressor.encode(X, restored) == compressor.encode(X, draws)


def test_half_used_words_are_saved_as_well() -> None:
    draws = Draws(1)
    draws.generator.random(3, dtype=np.float32)
    restored = Draws.from_state(json.loads(json.dumps(draws.state())))
    assert restored.generator.random(9).tolist() == draws.generator.random(9).tolist()
    assert keys(restored) == keys(draws)


def test_draws_return_to_where_they_were() -> None:
    draws = Draws(1)
    draws.key()
    place = draws.place()
    drawn = keys(draws)
    draws.return_to(place)
    assert keys(draws) == drawn


@pytest.mark.parametrize("state", [{}, {"state": 3}, {"state": {}, "buffer": "x"}])
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="state"):
        Draws.from_state(state)
