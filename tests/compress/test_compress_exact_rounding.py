"""The largest of each span, rounded to few levels: what is sent and what remains lose no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsewire.compress import CompressError, Compressor, KeptComposition, Rounded, SpanTopK
from sparsewire.compress import Draws as Draws

BITS = [None, 8, 4, 2]
NOTHING_DRAWN = Draws(0)

Array = NDArray[Any]


def operator_of(size: int, span: int, k: int, bits: int | None, dtype: Any = "f4") -> Compressor:
    largest = SpanTopK(size, k, span, dtype)
    if bits is None:
        return largest
    return KeptComposition(Rounded(largest.most_elements, bits, k, dtype), largest)


def largest_of_spans(values: Array, span: int, k: int) -> Array:
    """The values that are among the k largest of their span, zeros elsewhere."""
    kept = np.zeros_like(values)
    for first in range(0, values.size, span):
        part = values[first : first + span]
        where = np.argsort(-np.abs(part), kind="stable")[:k]
        kept[first + where] = part[where]
    return kept


def rounded(values: Array, span: int, bits: int | None) -> Array:
    """Each span's values as multiples of the power of two that just holds the largest."""
    if bits is None:
        return values
    parts = []
    for first in range(0, values.size, span):
        part = values[first : first + span].astype("f8")
        half_above = 2 ** (bits - 1) - 0.5
        step = 2.0 ** np.ceil(np.log2(np.abs(part).max() / half_above)) if part.any() else 1.0
        # An even quotient rounds up to one level too many.
        step *= 2 if np.rint(np.abs(part).max() / step) > half_above else 1
        parts.append(np.rint(part / step) * step)
    return np.concatenate(parts).astype(values.dtype)


@given(
    bits=st.sampled_from(BITS),
    seed=st.integers(0, 2**20),
    size=st.integers(1, 3000),
    span=st.integers(1, 700),
    k=st.integers(1, 40),
    spread=st.integers(0, 12),
)
def test_sends_the_largest_and_keeps_the_rest(
    bits: int | None, seed: int, size: int, span: int, k: int, spread: int
) -> None:
    generator = np.random.default_rng(seed)
    k = min(k, span)
    operator = operator_of(size, span, k, bits)
    residual = np.zeros(size, "f4")
    for _ in range(3):
        gradient = generator.standard_normal(size).astype("f4")
        gradient *= 2.0 ** generator.integers(-spread, spread + 1, size).astype("f4")
        owed = residual + gradient
        sum_ = gradient.copy()
        code = operator.code_of_sum(sum_, residual, NOTHING_DRAWN)
        assert np.array_equal(sum_, owed)
        sent = operator.decode(operator.pack(code))
        assert np.array_equal(sent, rounded(largest_of_spans(owed, span, k), span, bits))
        residual = owed.copy()
        operator.add(code, residual, -1.0)
        # In float64 both sums are exact: not a bit is lost.
        assert np.array_equal(sent.astype("f8") + residual, owed.astype("f8"))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_extreme_numbers(bits: int | None, dtype: str) -> None:
    limits = np.finfo(dtype)
    highest, lowest = limits.max, limits.smallest_subnormal
    for values in ([highest, -highest], [highest, 1.0], [lowest, -lowest], [-0.0, lowest], [0.0]):
        x = np.array(values, dtype)
        operator = operator_of(x.size, 512, 2, bits, dtype)
        sent = operator.decode(operator.encode(x, NOTHING_DRAWN))
        assert np.isfinite(sent).all()
        assert np.array_equal(sent.astype("f8") + (x - sent), x)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused_after_the_sum(bits: int | None, value: float) -> None:
    x, y = np.ones(600, "f4"), np.ones(600, "f4")
    x[303] = value
    with pytest.raises(CompressError, match=r"element 303 is not finite as float32"):
        operator_of(600, 512, 1, bits).code_of_sum(x, y, NOTHING_DRAWN)
    assert x[0] == 2


def test_spans_of_zeros_cost_nothing() -> None:
    for bits, most in ((None, 40), (4, 60)):
        operator = operator_of(512_000, 512, 4, bits)
        x = np.zeros(512_000, "f4")
        assert len(operator.encode(x, NOTHING_DRAWN)) < 20
        x[5120:5124] = 1
        assert len(operator.encode(x, NOTHING_DRAWN)) < most


def test_bytes_of_4_of_512() -> None:
    x = np.random.default_rng(0).standard_normal(512_000).astype("f4")
    for bits, most in ((None, 20.4), (8, 8.5), (4, 6.2), (2, 5.2)):
        size = len(operator_of(x.size, 512, 4, bits).encode(x, NOTHING_DRAWN)) / 1000
        assert 0.9 * most < size < most


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@given(data=st.data())
def test_rounding_is_a_contraction(bits: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 40))
    element = st.one_of(st.floats(-1, 1, width=32), st.sampled_from([0.25, 0.75, -0.75, 1.0]))
    x = np.array(data.draw(st.lists(element, min_size=size, max_size=size)), "f8")
    x[np.abs(x) < 1e-300] = 0
    operator = Rounded(size, bits, dtype="f8")
    lost = np.sum((operator.compress(x, NOTHING_DRAWN) - x) ** 2)
    assert lost <= (1 - operator.contraction) * np.sum(x**2) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("k", "span", "message"), [(0, 8, "k must be 1 to 8"), (9, 8, "k must be"), (1, 0, "1 to 0")]
)
def test_settings_are_checked(k: int, span: int, message: str) -> None:
    with pytest.raises(CompressError, match=message):
        SpanTopK(100, k, span)
    with pytest.raises(CompressError, match="2 to 8 bits"):
        Rounded(100, 9)


def test_a_level_beyond_all_numbers_is_refused() -> None:
    operator = Rounded(2, 4)
    code = operator.draw(np.array([3e38, 3e38], "f4"), NOTHING_DRAWN)
    forged = code._replace(scales=np.array([2.0**127], "f4"))
    with pytest.raises(CompressError, match="not finite"):
        operator.decode(operator.pack(forged))
