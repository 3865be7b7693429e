"""Traces come back as they were saved; what is no trace is told as such."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsewire.errors import InputError
from sparsewire.profile.records import trace
from sparsewire.profile.records.trace import Head

pytestmark = pytest.mark.timeout(60)

masks = st.lists(arrays(np.bool_, st.integers(1, 3000)), max_size=5)
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def head_of(step: int, mask: trace.Mask) -> Head:
    return Head(step, 1, [2, 0], len(mask), "bfloat16")


def write(path: Path, masks: list[trace.Mask]) -> None:
    path.unlink(missing_ok=True)
    for step, mask in enumerate(masks):
        trace.append(path, [trace.pack(head_of(step, mask), mask)])


@given(masks=masks)
@in_one_folder
def test_round_trip(tmp_path: Path, masks: list[trace.Mask]) -> None:
    path = trace.path_of(tmp_path, 3)
    write(path, masks)
    if not masks:
        return
    found = trace.read(path)
    assert [each.head for each in found] == [head_of(*each) for each in enumerate(masks)]
    for each, mask in zip(found, masks, strict=True):
        np.testing.assert_array_equal(each.mask(), mask)


@given(st.data())
@in_one_folder
def test_what_is_cut_off_is_told(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "rank-0.trace"
    mask = np.arange(999) % 7 == 0
    write(path, [mask, mask])
    whole = path.read_bytes()
    (first, _) = trace.read(path)
    end_of_first = len(trace.MAGIC) + len(trace.pack(first.head, mask))
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    if cut in (len(trace.MAGIC), end_of_first):
        assert len(trace.read(path)) == (cut == end_of_first)
    else:
        with pytest.raises(InputError, match=r"rank-0\.trace"):
            trace.read(path)


@given(at=st.integers(0, 200), byte=st.integers(0, 255))
@in_one_folder
def test_damage_is_told_or_harmless(tmp_path: Path, at: int, byte: int) -> None:
    path = tmp_path / "rank-0.trace"
    mask = np.random.default_rng(1).random(999) < 0.1
    write(path, [mask])
    damaged = bytearray(path.read_bytes())
    damaged[at % len(damaged)] = byte
    path.write_bytes(damaged)
    try:
        for each in trace.read(path):
            assert len(each.mask()) == each.head.elements
    except InputError:
        pass


def test_no_trace() -> None:
    with pytest.raises(InputError, match="--trace"):
        trace.read(Path("/nowhere/rank-0.trace"))
