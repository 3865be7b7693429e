"""Sums in fixed point are checked by their error bound: no more, and no less."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.fixed_point import BLOCK, FixedPointSum, fixed_point_sum
from sparsewire.tools.bench.job import BenchOptions
from sparsewire.tools.bench.patterns import Contribution, numpy_dtype

SEEDS = st.integers(0, 2**32)


def vectors(seed: int, ranks: int, elements: int, dtype: str) -> list[np.ndarray]:
    """Values of very different magnitudes, also within blocks, and some blocks of zeros."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(-30, 4, (ranks, elements)) if dtype != "float16" else -2
    values = np.ldexp(rng.uniform(-1, 1, (ranks, elements)), exponents)
    for vector in values:
        vector[: rng.integers(0, elements)] = 0
    return [vector.astype(numpy_dtype(dtype)) for vector in values]


def in_fixed_point(of_ranks: list[np.ndarray], op: str, coarser: int = 0) -> np.ndarray:
    """The arithmetic itself, number by number; so many bits coarser than it is meant to be."""
    ranks, dtype = len(of_ranks), of_ranks[0].dtype
    bits = math.floor(math.log2((2**31 - 1) / ranks)) - coarser
    result = np.zeros_like(of_ranks[0])
    for start in range(0, len(result), BLOCK):
        blocks = [own[start : start + BLOCK].astype(np.float64) for own in of_ranks]
        largest = max(float(np.abs(block).max()) for block in blocks)
        if largest:
            scale = 2.0 ** (bits - 1 - max(math.floor(math.log2(largest)), -126))
            whole = sum(np.rint(block * scale).astype(np.int64) for block in blocks)
            assert np.abs(whole).max() < 2**31
            sums = whole / scale / (ranks if op == "avg" else 1)
            result[start : start + BLOCK] = sums.astype(dtype)
    return result


def reference(of_ranks: list[np.ndarray], op: str) -> FixedPointSum:
    whole = (Contribution(slice(None), own.reshape(-1, 1), len(own)) for own in of_ranks)
    return fixed_point_sum(whole, len(of_ranks[0]), op, len(of_ranks))


@given(
    seed=SEEDS,
    ranks=st.integers(2, 9),
    elements=st.integers(1, 2000),
    op=st.sampled_from(["sum", "avg"]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_what_fixed_point_gives_is_right(
    seed: int, ranks: int, elements: int, op: str, dtype: str
) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    of_ranks = vectors(seed, ranks, elements, dtype)
    expected = reference(of_ranks, op)
    assert expected.rounded.dtype == of_ranks[0].dtype
    assert expected.first_difference(in_fixed_point(of_ranks, op)) is None
    assert expected.first_difference(expected.rounded) is None


@given(seed=SEEDS)
def test_what_is_rounded_too_coarsely_is_wrong(seed: int) -> None:
    of_ranks = vectors(seed, 4, 20 * BLOCK, "float32")
    of_ranks[0][-BLOCK:] += 1
    assert reference(of_ranks, "sum").first_difference(in_fixed_point(of_ranks, "sum", 6))


def test_a_few_last_places_are_wrong_where_fixed_point_is_finer() -> None:
    of_ranks = [np.full(3 * BLOCK, 0.4, np.float32)] * 4
    expected = reference(of_ranks, "sum")
    result = in_fixed_point(of_ranks, "sum")
    result[700] += 3 * np.spacing(result[700])
    assert expected.first_difference(result) == 700


def test_far_elements_are_found_too() -> None:
    expected = reference([np.ones(3 << 20, np.float32)] * 2, "sum")
    result = expected.rounded.copy()
    result[-5] = np.nan
    assert expected.first_difference(result) == len(result) - 5


def test_zeros_have_no_error() -> None:
    expected = reference([np.zeros(BLOCK, np.float32)] * 2, "sum")
    result = np.zeros(BLOCK, np.float32)
    assert expected.first_difference(result) is None
    result[1] = 1e-30
    assert expected.first_difference(result) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "float64"},
        {"op": "max"},
        {"input": "sparse"},
        {"precision": "bfloat16"},
    ],
)
def test_only_dense_sums_are_in_fixed_point(fields: dict[str, str]) -> None:
    options = BenchOptions(elements="1000", arithmetic="fixed", **fields)  # type: ignore[arg-type]
    with pytest.raises(ExperimentError, match="--arithmetic fixed is for"):
        options.job(ranks=4)


def test_whole_numbers_stay_exact() -> None:
    assert not BenchOptions(elements="10", arithmetic="fixed", dtype="int32").job(2).in_fixed_point
    assert BenchOptions(elements="10", arithmetic="fixed").job(2).in_fixed_point
    assert not BenchOptions(elements="10", arithmetic="exact").job(2).in_fixed_point
