"""The expected result, against a plain dense reduction."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.tools.bench.case_data import first_difference, reduce_in_rank_order
from sparsewire.tools.bench.patterns import Pattern, contribute, numpy_dtype

COMBINE = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum}
COMBINE["product"] = np.multiply
DTYPES = ["float32", "float64", "float16", "int32", "int64"]


@given(
    dtype=st.sampled_from(DTYPES),
    op=st.sampled_from(sorted(COMBINE)),
    pattern=st.builds(Pattern, st.sampled_from([1, 4, 256]), st.booleans()),
    elements=st.integers(1, 700),
    density=st.floats(0.01, 1.0),
    ranks=st.integers(2, 5),
)
def test_it_is_the_dense_reduction_in_rank_order(
    dtype: str, op: str, pattern: Pattern, elements: int, density: float, ranks: int
) -> None:
    if op == "avg" and dtype.startswith("int"):
        return
    kind = np.dtype(dtype)
    parts = [contribute(pattern, elements, density, kind, 1, rank) for rank in range(ranks)]
    wide = np.dtype(np.float32) if kind == np.float16 else kind
    vectors = [p.dense().reshape(-1)[:elements].astype(wide) for p in parts]
    expected = functools.reduce(COMBINE[op], vectors)
    if op == "avg":
        expected = expected / wide.type(ranks)
    result = reduce_in_rank_order(iter(parts), elements, op, ranks)
    assert result.dtype == kind
    assert first_difference(result, expected.astype(kind), exact=True, ranks=ranks) is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tolerance_forgives_rounding_but_no_error(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    expected = np.ones(8, numpy_dtype(dtype))
    result = expected.copy()
    result.view("u1")[0] ^= 1
    assert first_difference(result, expected, exact=True, ranks=2) == 0
    assert first_difference(result, expected, exact=False, ranks=2) is None
    result[5] = 2
    assert first_difference(result, expected, exact=False, ranks=2) == 5


def test_integers_have_no_tolerance() -> None:
    expected = np.full(4, 10**6, np.int64)
    result = expected + np.array([0, 0, 0, 1])
    assert first_difference(result, expected, exact=False, ranks=2) == 3


def test_nan_is_wrong() -> None:
    expected = np.zeros(3, np.float32)
    assert first_difference(expected * np.nan, expected, exact=False, ranks=2) == 0


def rounded(values: np.ndarray, levels: int, seed: int) -> np.ndarray:
    """Unbiased rounding to levels of a scale of one half, as QSGD does it."""
    scaled = values.astype(np.float64) * levels / 0.5
    noise = np.random.default_rng(seed).random(len(values))
    return (np.floor(scaled + noise) * 0.5 / levels).astype(np.float32)


@pytest.mark.parametrize(("precision", "levels"), [("int8", 127), ("int4", 7), ("int2", 1)])
def test_a_precision_forgives_its_rounding_but_no_error(precision: str, levels: int) -> None:
    values = np.random.default_rng(1).random((2, 50_000), dtype=np.float32) - np.float32(0.5)
    expected = values[0] + values[1]
    result = rounded(values[0], levels, 2) + rounded(values[1], levels, 3)

    def is_right(found: np.ndarray, precision: str | None = precision) -> bool:
        at = first_difference(found, expected, exact=False, ranks=2, precision=precision)
        return at is None

    assert is_right(result)
    assert not is_right(result, None)
    assert not is_right(np.zeros_like(expected))
    assert not is_right(2 * result)
    assert not is_right(np.roll(result, 1))


def test_half_precision_on_the_wire_has_the_tolerance_of_its_type() -> None:
    expected = np.linspace(0.5, 1, 100, dtype=np.float32)
    result = expected.astype(np.float16).astype(np.float32)
    assert first_difference(result, expected, exact=False, ranks=2) is not None
    for precision in ("float16", "bfloat16,float16"):
        at = first_difference(result, expected, exact=False, ranks=2, precision=precision)
        assert at is None
