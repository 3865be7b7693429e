"""Sizes by which benchmarks/weights_training.py compares: each against a plain reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("matplotlib")
pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import torch
import weights_models
import weights_rivals
import weights_training

from sparsewire.weights.versions.coding import Coder

words = st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=50)


def numbers_in(code: bytes) -> Iterator[int]:
    """What LEB128 says, byte by byte."""
    number, place = 0, 0
    for byte in code:
        number |= (byte & 127) << place
        place += 7
        if byte < 128:
            yield number
            number, place = 0, 0


@given(st.lists(st.integers(0, 2**35 - 1)))
def test_varints_are_leb128(numbers: list[int]) -> None:
    code = weights_rivals.varint_bytes(np.array(numbers, np.int64))
    assert list(numbers_in(code)) == numbers
    assert len(code) == sum(max(1, -(-number.bit_length() // 7)) for number in numbers)


@given(words, st.data())
def test_gaps_and_values_tell_the_new_version(base: list[int], data: st.DataObject) -> None:
    fresh = data.draw(st.lists(st.sampled_from([0, *base]), min_size=len(base), max_size=len(base)))
    arrays = np.array(base, np.uint16), np.array(fresh, np.uint16)
    changed = sum(old != new for old, new in zip(base, fresh, strict=True))
    code = weights_rivals.gaps_and_values(*arrays)
    gaps = code[: len(code) - 2 * changed]
    values = np.frombuffer(code[len(gaps) :], np.uint16).tolist()
    at = -1
    for gap, value in zip(numbers_in(gaps), values, strict=True):
        at += gap + 1
        base[at] = value
    assert base == fresh
    assert weights_rivals.coordinates(*arrays) == 6 * changed


def test_dte_sends_a_tensor_whole_from_a_share_on() -> None:
    base, fresh = np.zeros(100, np.uint16), np.zeros(100, np.uint16)
    fresh[:30] = 1
    assert weights_rivals.dte(base, fresh) == 30 * 6
    fresh[30] = 1
    assert weights_rivals.dte(base, fresh) == 200


@given(st.floats(-(2.0**120), 2.0**120, width=32))
def test_steps_count_representable_numbers(value: float) -> None:
    values = [np.float32(value)]
    for _ in range(3):
        values.append(np.nextafter(values[-1], np.float32(np.inf)))
    bits = np.array(values, np.float32).view(np.uint32)
    # Zero has two signs, which are neighbours of each other.
    crossed = values[0] <= 0 <= values[-1] and values[0] != values[-1]
    steps = weights_training.steps_of(bits[:1].repeat(3), bits[1:])
    assert steps.tolist() in ([1, 2, 3], *([[1, 2, 4], [1, 3, 4], [2, 3, 4]] if crossed else []))


@pytest.mark.parametrize(
    ("elements", "steps", "bits"),
    [
        (100, [], 0.0),
        (8, [1, 1, 1, 1], 8.0),  # positions alone: a bit each
        (8, [1, -1, 1, -1], 8.0 + 4.0),  # and signs
        (8, [1000] * 4, 8.0 + 4 * 6.0),  # 10 bits long, of which 4 are counted by frequency
        (4, [1, -1, 1, -1], 4.0),  # no choice of positions
    ],
)
def test_entropy(elements: int, steps: list[int], bits: float) -> None:
    assert weights_training.entropy_bits(elements, np.array(steps, np.int64)) == bits


def test_gpt_is_read_as_its_rounded_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_models, "LAYERS", 1)
    training = weights_models.GPTTraining(weights_models.text(None))
    before = training.bits()
    training.step()
    after = training.bits()
    for bits, master in zip(after.values(), training.masters, strict=True):
        assert (bits == master.bfloat16().flatten().view(torch.int16).numpy().view("u2")).all()
    assert any((before[name] != bits).any() for name, bits in after.items())


def test_recommender_changes_rows_that_were_drawn_alone() -> None:
    training = weights_models.RecommenderTraining()
    before = training.bits()
    training.step()
    changed = (before["users.weight"] != training.bits()["users.weight"]).reshape(-1, 64).any(1)
    assert 0 < changed.sum() <= weights_models.RATINGS


def test_a_version_is_measured_tensor_by_tensor() -> None:
    base = {"one": np.arange(1000, dtype=np.uint16), "two": np.arange(9, dtype=np.uint16)}
    fresh = {"one": base["one"] + np.uint16(1), "two": base["two"].copy()}
    rivals = {"coordinates": weights_rivals.coordinates}
    with Coder(1) as coder:
        found = weights_training.measured(base, fresh, coder, rivals)
        own = sum(weights_training.coded_bytes(coder, base[name], fresh[name]) for name in base)
    assert found["changed_share"] == 1000 / 1009
    assert (found["one_step_share"], found["two_steps_share"]) == (1, 0)
    assert (found["coordinates"], found["sparsewire"]) == (6, own / 1000)
    assert (found["smallest_share"], found["smallest_tensor_share"]) == (1, 1)
