"""Centroids: projections with the bits and the errors that are promised, and what is measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from sparsewire.compress import Centroids, CompressError, Draws, certificate, parse

NOTHING_DRAWN = Draws(0)
SPARSE_LOCO = "centroids:64+span-top-k:64:4096"
EPSILON = {"f4": 1e-6, "f8": 1e-12}


def squares(x: NDArray[Any]) -> float:
    return float(np.sum(x.astype(np.float64) ** 2))


def vectors(dtype: str) -> st.SearchStrategy[NDArray[Any]]:
    sizes = st.floats(2.0**-40, 2.0**40, width=32)
    element = st.one_of(st.just(0.0), sizes, sizes.map(lambda v: -v), st.sampled_from([1.0, -1.0]))
    return npst.arrays(dtype, st.integers(1, 60), elements=element)


def largest_of(draw: NDArray[np.float64]) -> NDArray[np.float32]:
    """The 64 largest of each 4096 values, in rows."""
    rows = draw.astype(np.float32).reshape(-1, 4096)
    order = np.argsort(-np.abs(rows), axis=1)[:, :64]
    return np.take_along_axis(rows, order, 1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["centroids:9", "centroids:4+span-top-k:4:16"])
@given(data=st.data())
def test_a_projection(dtype: str, name: str, data: st.DataObject) -> None:
    """|x - Cx|^2 = |x|^2 - |Cx|^2, also where zeros move spans; what is promised is kept."""
    x = data.draw(vectors(dtype))
    operator = parse(name, x.size, dtype)
    sent = operator.compress(x, NOTHING_DRAWN)
    allowed = EPSILON[dtype] * squares(x)
    assert abs(squares(x - sent) - (squares(x) - squares(sent))) <= allowed
    assert squares(sent) >= operator.contraction * squares(x) - allowed
    assert ((sent == 0) | (np.sign(sent) == np.sign(x))).all()


@pytest.mark.parametrize("span", [1, 2, 64, 512])
def test_the_vector_for_which_it_was_derived_keeps_at_most_twice_that(span: int) -> None:
    """Of S_j = sqrt(j) the large class keeps 1, whatever the split, and the small one less."""
    operator = Centroids(span, span, "f8")
    x = np.diff(np.sqrt(np.arange(span + 1.0)))
    kept = squares(operator.compress(x, NOTHING_DRAWN)) / squares(x)
    assert operator.contraction == pytest.approx(1 / squares(x))
    assert operator.contraction * (1 - 1e-12) <= kept < 2 * operator.contraction


def test_it_contracts_more_than_signs() -> None:
    for span in (2, 64, 4096):
        assert Centroids(span, span).contraction > parse(f"sign:{span}", span).contraction


@pytest.mark.parametrize(("distribution", "most"), [("normal", 0.006), ("laplace", 0.017)])
def test_error_on_the_largest_64_of_4096(distribution: str, most: float) -> None:
    draw = getattr(np.random.default_rng(2508), distribution)(size=64 * 4096)
    kept = largest_of(draw).reshape(-1)
    sent = Centroids(kept.size, 64).compress(kept, NOTHING_DRAWN)
    assert squares(kept - sent) / squares(kept) <= most


def test_bits_of_64_of_4096() -> None:
    """All in: positions, symbols, two magnitudes for each 64, and heads."""
    x = np.random.default_rng(15706).standard_normal(256 * 4096).astype(np.float32)
    payload = parse(SPARSE_LOCO, x.size).encode(x, NOTHING_DRAWN)
    assert 10 < 8 * len(payload) / (256 * 64) <= 10.7
    assert x.nbytes / len(payload) >= 190


@given(x=vectors("f8"), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", [SPARSE_LOCO, "centroids:8", "top-k:1", "natural", "rand-k:1"])
def test_certificates_are_what_is_left(name: str, x: NDArray[Any], seed: int) -> None:
    operator = parse(name, x.size, "f8")
    code = operator.code(x, Draws(seed))
    error = squares(operator.reconstruct(code) - x)
    expected = 1 - error / squares(x) if x.any() else 1.0
    assert certificate(operator, x, code) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_certificates_of_the_largest_numbers() -> None:
    x = np.array([3e38, -1e38, 1e-45], np.float32)
    operator = parse("top-k:1", 3)
    assert certificate(operator, x, operator.code(x, NOTHING_DRAWN)) == pytest.approx(0.9)


def test_zeros_at_the_end_of_what_is_kept() -> None:
    """Spans with fewer values than are kept: later ones move up, and all are sent."""
    x = np.zeros(4096 * 3, np.float32)
    x[:10] = np.arange(1, 11)
    x[5000:5100] = 2
    x[9000:9090] = -1
    operator = parse(SPARSE_LOCO, x.size)
    code = operator.read(operator.encode(x, NOTHING_DRAWN))
    sent = operator.reconstruct(code)
    assert np.count_nonzero(sent) == 10 + 64 + 64
    assert squares(x - sent) == pytest.approx(squares(x) - squares(sent), rel=1e-6)
    assert certificate(operator, x, code) == pytest.approx(squares(sent) / squares(x))


def test_settings_are_checked() -> None:
    with pytest.raises(CompressError, match="at least 1 element"):
        Centroids(10, 0)
    with pytest.raises(CompressError, match="no 3 symbols"):
        Centroids(10).decode(b"\3" + bytes(40))
    assert math.isclose(Centroids(1).contraction, 1)
