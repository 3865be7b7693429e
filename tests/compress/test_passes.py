"""Passes over large vectors, and sums of marked blocks, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire import _core
from sparsewire.compress.marks import Blocks, Marks

SIZES = st.integers(0, 10_000)


def vector(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@given(SIZES, st.floats(0, 1, width=32), st.booleans())
def test_differences_are_measured(size: int, beta: float, adds: bool) -> None:
    start, now, added = (vector(size, seed) for seed in range(3))
    out = np.empty_like(start)
    moved, turned = _core.subtract_into(start, now, added if adds else None, beta, out)
    difference = start - now
    wanted = difference + np.float32(beta) * added if adds else difference
    assert np.array_equal(out, wanted)
    assert moved == pytest.approx(np.linalg.norm(difference.astype(np.float64)), rel=1e-6)
    assert turned == pytest.approx(np.linalg.norm(wanted.astype(np.float64)), rel=1e-6)


@given(SIZES, st.floats(-4, 4, width=32))
def test_products_are_measured(size: int, factor: float) -> None:
    values = vector(size, 0)
    wanted = values * np.float32(factor)
    norm = _core.scale_in_place(values, factor)
    assert np.array_equal(values, wanted)
    assert norm == pytest.approx(np.linalg.norm(wanted.astype(np.float64)), rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_norm_tells_of_what_is_not_finite(value: float) -> None:
    values = vector(9_999, 0)
    values[7_777] = value
    assert not np.isfinite(_core.scale_in_place(values, 0.5))


def test_vectors_of_other_sizes_are_refused() -> None:
    short, long = vector(9, 0), vector(10, 0)
    with pytest.raises(ValueError, match="one length"):
        _core.subtract_into(short, long, None, 0.0, long)
    with pytest.raises(ValueError, match="float32"):
        _core.scale_in_place(long.astype(np.float64), 1.0)


@given(st.integers(1, 3_000), st.integers(1, 70), st.randoms(use_true_random=False))
def test_marked_blocks_are_added(size: int, block: int, random: object) -> None:
    blocks = Blocks(size, block)
    chosen = np.flatnonzero([random.random() < 0.3 for _ in range(blocks.count)])  # type: ignore[attr-defined]
    marks = Marks.of(chosen, blocks.count)
    total, added = vector(size, 0), vector(size, 1)
    wanted = total.copy()
    positions = blocks.elements(chosen)
    wanted[positions] += added[positions]
    blocks.add(blocks.gather(added, marks), marks, total)
    assert np.array_equal(total, wanted)
