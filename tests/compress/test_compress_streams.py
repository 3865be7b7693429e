"""Random streams: each rank has one of its own, it can be saved, and nobody else's is touched."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from compress_cases import BIASED, UNBIASED

from sparsewire.compress import RandK, Stream, parse

X = np.random.default_rng(0).standard_normal(64)


def keys(stream: Stream) -> list[int]:
    return [stream.key() for _ in range(20)]


def test_the_same_stream_gives_the_same_numbers() -> None:
    assert keys(Stream(1, 2, "a")) == keys(Stream(1, 2, "a"))


@pytest.mark.parametrize("other", [Stream(1, 3, "a"), Stream(2, 2, "a"), Stream(1, 2, "b")])
def test_seed_rank_and_name_each_make_another_stream(other: Stream) -> None:
    assert not set(keys(Stream(1, 2, "a"))) & set(keys(other))


def test_workers_draw_different_masks() -> None:
    compressor = RandK(64, 8)
    masks = {tuple(np.flatnonzero(compressor.compress(X, Stream(0, rank)))) for rank in range(20)}
    assert len(masks) == 20


@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_global_generators_are_left_alone(name: str) -> None:
    torch = pytest.importorskip("torch")
    before = np.random.get_state()[1:3], random.getstate(), torch.get_rng_state()
    compressor, stream = parse(name, 64), Stream(4)
    compressor.decode(compressor.encode(X, stream))
    compressor.compress(torch.tensor(X), stream)
    (words, at), state = np.random.get_state()[1:3], random.getstate()
    assert np.array_equal(words, before[0][0])
    assert at == before[0][1]
    assert state == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("name", UNBIASED + BIASED)
def test_a_restored_stream_goes_on_as_the_saved_one(name: str) -> None:
    compressor, stream = parse(name, 64), Stream(11, 3, "compressor")
    for _ in range(3):
        compressor.encode(X, stream)
    restored = Stream.from_state(json.loads(json.dumps(stream.state())))
    for _ in range(3):
        assert compressor.encode(X, restored) == compressor.encode(X, stream)


def test_half_used_words_are_saved_as_well() -> None:
    stream = Stream(1)
    stream.generator.random(3, dtype=np.float32)
    restored = Stream.from_state(json.loads(json.dumps(stream.state())))
    assert restored.generator.random(9).tolist() == stream.generator.random(9).tolist()
    assert keys(restored) == keys(stream)


@pytest.mark.parametrize("state", [{}, {"state": 3}, {"state": {}, "buffer": "x"}])
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="state"):
        Stream.from_state(state)
