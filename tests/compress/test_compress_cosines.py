"""Cosines: an orthonormal transform, the same everywhere, and operators of coefficients."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.compress import (
    CompressError,
    Cosines,
    Draws,
    InCosines,
    KeptComposition,
    RandK,
    as_contraction,
    dct_top_k,
    parse,
)
from sparsewire.compress.cosines import _cosine_matrix

NOTHING_DRAWN = Draws(0)


@pytest.mark.parametrize("side", [1, 2, 3, 8, 64])
def test_the_matrix_is_orthonormal_to_the_last_bits(side: int) -> None:
    matrix = _cosine_matrix(side)
    assert np.allclose(matrix @ matrix.T, np.eye(side), rtol=0, atol=4e-16 * side)
    rows, columns = np.indices((side, side))
    expected = np.cos(np.pi * (2 * columns + 1) * rows / (2 * side)) * math.sqrt(2 / side)
    expected[0] = math.sqrt(1 / side)
    assert np.allclose(matrix, expected, rtol=0, atol=1e-14)


def test_roots_in_the_matrix_are_the_nearest_to_them() -> None:
    """Of 2 x 2 all elements are the root of one half: its square is nearest, in exact fractions."""
    value = float(_cosine_matrix(2)[1, 0])
    errors = [abs(Fraction(v) ** 2 - Fraction(1, 2)) for v in np.nextafter(value, [0, value, 1])]
    assert errors[1] == min(errors)
    assert (np.abs(_cosine_matrix(2)) == value).all()


@given(dimension=st.integers(1, 300), side=st.integers(1, 12), seed=st.integers(0, 99))
def test_back_and_forth(dimension: int, side: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(dimension)
    cosines = Cosines(dimension, side)
    coefficients = cosines.forward(x)
    assert np.allclose(cosines.inverse(coefficients), x, rtol=0, atol=1e-13)
    assert np.linalg.norm(coefficients) == pytest.approx(np.linalg.norm(x))


def test_a_smooth_vector_has_few_coefficients() -> None:
    """A wave that the transform has as it is, which top-k of elements would miss."""
    wave = np.outer(np.ones(64), np.cos(np.pi * (np.arange(64) + 0.5) * 5 / 64)).reshape(-1)
    sent = dct_top_k(4096, 1, dtype=np.float64).compress(wave, NOTHING_DRAWN)
    assert np.allclose(sent, wave, rtol=0, atol=1e-12)


def test_a_sum_of_codes_is_transformed_once() -> None:
    """The sum of what ranks send, added as coefficients; each step has one order on every rank."""
    operator = parse("centroids:16+dct-top-k:16:8", 1000)
    assert isinstance(operator, InCosines)
    vectors = np.random.default_rng(2).standard_normal((4, 1000)).astype(np.float32)
    codes = [operator.code(x, NOTHING_DRAWN) for x in vectors]
    total = np.zeros(operator.cosines.coefficients, np.float32)
    for code in codes:
        operator.inner.add(code, total)
    expected = sum(operator.reconstruct(code).astype(np.float64) for code in codes)
    assert np.allclose(operator.cosines.inverse(total), expected, rtol=0, atol=2e-6)


def test_what_stands_before_it_works_on_coefficients() -> None:
    operator = parse("sign:4+dct-top-k:4:8", 640, "f8")
    assert isinstance(operator, InCosines)
    assert isinstance(operator.inner, KeptComposition)
    assert operator.contraction == 4 / 64 / 4
    assert parse("dct-top-k:0.25:8", 640).contraction == 0.25
    assert parse("dct-top-k:0.25", 640).contraction == 0.25


@pytest.mark.parametrize("dimension", [112, 100])
def test_omega_is_that_of_the_inner_operator(dimension: int) -> None:
    operator = InCosines(dimension, RandK(112, 28, dtype="f8"), 4)
    assert operator.omega == 3
    x, draws = np.random.default_rng(1).standard_normal(dimension), Draws(1)
    errors = [np.sum((operator.compress(x, draws) - x) ** 2) for _ in range(300)]
    assert np.mean(errors) <= 1.1 * 3 * np.sum(x**2)
    assert as_contraction(operator).contraction == 0.25


def test_settings_are_checked() -> None:
    with pytest.raises(CompressError, match="a side must be 1 to 256, not 257"):
        Cosines(10, 257)
    with pytest.raises(CompressError, match="must take 16 of them, not 10"):
        InCosines(10, RandK(10, 1), 4)
    with pytest.raises(CompressError, match="k must be 1 to 16"):
        parse("dct-top-k:17:4", 100)
    with pytest.raises(CompressError, match="too large for coefficients"):
        parse("dct-top-k:1:4", 16).encode(np.full(16, 1e38, np.float32), NOTHING_DRAWN)
