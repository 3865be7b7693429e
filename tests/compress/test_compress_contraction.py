"""Biased operators shrink the error by at least what they promise, and choose rightly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compress_cases import BIASED, UNBIASED, measure, named_vectors

from sparsewire.compress import (
    BlockThreshold,
    BlockTopK,
    BlockTopKRatio,
    CompressError,
    Compressor,
    Contractive,
    Draws,
    LowRank,
    Sign,
    Threshold,
    TopK,
    Unscaled,
    as_contraction,
    parse,
)

DIMENSION = 64
DRAWS = 100


def assert_contracts(compressor: Compressor, vector: str) -> None:
    assert compressor.is_biased
    assert 0 <= compressor.contraction <= 1
    losses = measure(compressor, named_vectors(DIMENSION)[vector], DRAWS)
    bound = 1 - compressor.contraction
    assert losses.variance <= bound + 3 * losses.uncertainty + 1e-12


@pytest.mark.parametrize("vector", named_vectors(DIMENSION))
@pytest.mark.parametrize("name", [*BIASED, "low-rank:2:4", "low-rank:2:32"])
def test_error_contracts(name: str, vector: str) -> None:
    assert_contracts(parse(name, DIMENSION, np.float64), vector)


@pytest.mark.parametrize("vector", named_vectors(DIMENSION))
@pytest.mark.parametrize("name", UNBIASED)
def test_scaled_unbiased_operator_contracts(name: str, vector: str) -> None:
    assert_contracts(Contractive(parse(name, DIMENSION, np.float64)), vector)


# Compositions and mixtures whose unbiased parts lose more than all of a vector as they are.
SCALED = {
    "ternary+top-k:0.5": 0.5 / math.sqrt(32),
    "qsgd:1:16+top-k:0.25": 0.25 / 4,
    "top-k:0.5+rand-k:0.25": 0.125,
    "sign+rand-k:16": 0.25 / 16,
    "natural+top-k:0.25": 0.25 * 8 / 9,
    "natural+rand-k:0.25": 0.25 * 8 / 9,
    "ternary+sign": 1 / (64 * 8),
    "ternary+bernoulli:0.5:1": 0.5 / 8,
    "ternary+natural+top-k:0.5": 0.5 * 8 / 9 / 8,
    "rand-k:4+low-rank:2": 2 / 8 * 4 / 64,
    "0.5*ternary|0.5*sign": 0.5 / 8 + 0.5 / 64,
    "0.5*rand-k:4|0.5*top-k:8": 0.5 / 16 + 0.5 / 8,
    "0.5*qsgd:1+top-k:0.25|0.5*natural": 0.5 * 0.25 / 4 + 0.5 * 8 / 9,
    "natural+block-top-k:2:8": 2 / 8 * 8 / 9,
}


@pytest.mark.parametrize("vector", named_vectors(DIMENSION))
@pytest.mark.parametrize("name", SCALED)
def test_scaled_composition_contracts(name: str, vector: str) -> None:
    operator = as_contraction(parse(name, DIMENSION, np.float64))
    assert operator.contraction == pytest.approx(SCALED[name])
    assert_contracts(operator, vector)


@pytest.mark.parametrize("name", [*UNBIASED, *SCALED])
def test_the_message_of_what_is_scaled_is_the_same(name: str) -> None:
    operator, x = parse(name, DIMENSION, np.float64), named_vectors(DIMENSION)["gaussian"]
    scaled = as_contraction(operator)
    assert as_contraction(scaled).contraction == scaled.contraction
    payload = scaled.encode(x, Draws(3))
    # What is random in an outer operator follows what the inner one made of the vector.
    if not operator.is_biased:
        assert payload == operator.encode(x, Draws(3))
    assert np.array_equal(scaled.decode(payload), scaled.compress(x, Draws(3)))
    total = np.ones(DIMENSION)
    scaled.add(scaled.read(payload), total, 2.0)
    assert np.allclose(total, 1 + 2 * scaled.decode(payload))


@pytest.mark.parametrize(
    "name", ["rand-k:5", "block-random-k:2:8", "bernoulli:0.5:1", "bernoulli:1"]
)
def test_a_scaled_sparsifier_keeps_elements_as_they_are(name: str) -> None:
    x = np.arange(1.0, DIMENSION + 1) / 3
    operator = as_contraction(parse(name, DIMENSION, np.float64))
    assert isinstance(operator, Unscaled)
    kept = operator.compress(x, Draws(5))
    assert kept.any()
    assert np.array_equal(kept[kept != 0], x[kept != 0])


@pytest.mark.parametrize(
    "name",
    [
        "sign+natural",
        "top-k:8+ternary",
        "top-k:8+sign",
        "natural+threshold:1",
        "0.5*threshold:1|0.5*threshold:2",
        "0.9*identity|0.1*top-k:8+ternary",
    ],
)
def test_what_is_no_contraction_is_refused(name: str) -> None:
    with pytest.raises(CompressError, match="needs a contraction, and none is known"):
        as_contraction(parse(name, DIMENSION))


@pytest.mark.parametrize("name", ["threshold:1", "block-threshold:1:8", "top-k:3", "sign"])
def test_biased_operators_and_thresholds_are_taken_as_they_are(name: str) -> None:
    operator = parse(name, DIMENSION)
    assert as_contraction(operator) is operator


@pytest.mark.parametrize("name", [*SCALED, *UNBIASED])
def test_what_is_owed_stays_bounded(name: str) -> None:
    """Of gradients of norm 1, what is owed has at most norm 2/a, whatever the operator."""
    operator, draws = as_contraction(parse(name, DIMENSION, np.float64)), Draws(1)
    gradient = np.full(DIMENSION, 1 / math.sqrt(DIMENSION))
    owed = np.zeros(DIMENSION)
    for _ in range(200):
        owed += gradient
        owed -= operator.compress(owed, draws)
    # The bound is of the mean of squares: 2 sqrt(1 - a)/a.
    assert np.linalg.norm(owed) <= 2 / operator.contraction


def test_contraction_is_reached_in_the_worst_case() -> None:
    ones, e1 = np.ones(DIMENSION), np.eye(1, DIMENSION)[0]
    parameters = np.arange(1.0, DIMENSION + 1)
    for compressor, x in [
        (TopK(DIMENSION, 5), ones),
        (BlockTopK(DIMENSION, 3, 8), ones),
        # What scales with the parameters has equal ratios, and the first blocks are the least.
        (BlockTopKRatio(DIMENSION, 3, 8, parameters=parameters), parameters),
    ]:
        losses = measure(compressor, x, 1)
        assert losses.variance == pytest.approx(1 - compressor.contraction, rel=1e-5)
    # A single element keeps its zeros, so that sign does a little better than 1 - 1/d.
    assert measure(Sign(DIMENSION), e1, 1).variance == pytest.approx((1 - 1 / DIMENSION) ** 2)


def test_a_biased_operator_is_contractive_as_it_is() -> None:
    x, inner = np.arange(1.0, 9.0), TopK(8, 2)
    assert np.array_equal(Contractive(inner).compress(x, Draws(0)), [0] * 6 + [7, 8])
    assert Contractive(inner).contraction == inner.contraction


def test_top_k_keeps_the_first_of_equal_magnitudes() -> None:
    x = np.array([1.0, -3, 2, 3, -3, 0, 3])
    kept = TopK(7, 3).compress(x, Draws(0))
    assert kept.tolist() == [0, -3, 0, 3, -3, 0, 0]


def test_threshold_keeps_what_is_large_enough() -> None:
    x = np.array([0.5, -1.0, 0.9375, 4.0, 0.0])
    compressor = Threshold(5, 1.0)
    assert compressor.compress(x, Draws(0)).tolist() == [0, -1, 0, 4, 0]
    assert compressor.encode(x * 0.1, Draws(0)) == b""
    assert not compressor.decode(b"").any()
    assert compressor.error_bound == 5
    assert Threshold(5, 0.0).compress(x, Draws(0)).tolist() == x.tolist()


def test_blocks_are_chosen_by_their_norm() -> None:
    x = np.array([3.0, 0, 2.5, 2.5, 1, 1, 5])
    assert BlockTopK(7, 2, 2).compress(x, Draws(0)).tolist() == [0, 0, 2.5, 2.5, 0, 0, 5]
    assert BlockThreshold(7, 3.0, 2).compress(x, Draws(0)).tolist() == [3, 0, 2.5, 2.5, 0, 0, 5]


def test_block_ratio_compares_with_the_parameters() -> None:
    x = np.array([3.0, 0, 2, 2, 1, 1, 0, 0])
    compressor = BlockTopKRatio(8, 1, 2)
    assert compressor.compress(x, Draws(0)).tolist() == [3, 0, 0, 0, 0, 0, 0, 0]
    compressor.follow([30.0, 1, 1, 1, 1e-3, 0, 0, 0])
    assert compressor.compress(x, Draws(0)).tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    # Without parameters there, any update counts for infinitely much, but none for nothing.
    compressor.follow([1.0, 1, 0, 0, 1, 1, 0, 0])
    assert compressor.compress(x, Draws(0)).tolist() == [0, 0, 2, 2, 0, 0, 0, 0]
    assert compressor.contraction == 0


@pytest.mark.parametrize(("rows", "contraction"), [(4, 0.5), (8, 0.25), (32, 1.0)])
def test_low_rank_contracts_by_the_shorter_side(rows: int, contraction: float) -> None:
    operator = LowRank(DIMENSION, 2, rows, np.float64)
    assert operator.contraction == contraction
    # All singular values are equal, which is the worst there is.
    matrix = np.eye(rows, DIMENSION // rows).reshape(-1)
    losses = measure(operator, matrix, DRAWS)
    assert losses.variance == pytest.approx(1 - contraction, abs=1e-6)


def test_low_rank_keeps_a_matrix_of_that_rank() -> None:
    generator = np.random.default_rng(3)
    matrix = generator.standard_normal((12, 2)) @ generator.standard_normal((2, 9))
    compressor = LowRank(108, 2, rows=12, dtype=np.float64)
    assert np.allclose(compressor.compress(matrix, Draws(0)), matrix, rtol=0, atol=1e-12)


def test_low_rank_warm_start_reaches_the_best_projection() -> None:
    matrix = np.random.default_rng(4).standard_normal((20, 15)) * 0.7 ** np.arange(15)
    singular = np.linalg.svd(matrix, compute_uv=False)
    best = math.sqrt(np.sum(singular[3:] ** 2))
    compressor, draws = LowRank(300, 3, rows=20, dtype=np.float64), Draws(1)
    errors = []
    for _ in range(60):
        payload = compressor.encode(matrix, draws)
        errors.append(np.linalg.norm(compressor.decode(payload) - matrix.reshape(-1)))
        compressor.start = compressor.next_start(payload)
    assert errors[0] > 1.01 * best
    assert errors[-1] == pytest.approx(best, rel=1e-6)


def test_low_rank_survives_a_start_that_the_matrix_maps_to_zero() -> None:
    x = np.zeros(16)
    x[0] = 1.0
    start = np.eye(4)[:, 1:2]
    compressed = LowRank(16, 1, start=start).compress(x, Draws(0))
    assert np.isfinite(compressed).all()
    assert np.linalg.norm(compressed - x) <= 1
