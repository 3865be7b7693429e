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
    Compressor,
    Contractive,
    LowRank,
    Sign,
    Stream,
    Threshold,
    TopK,
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
@pytest.mark.parametrize("name", BIASED)
def test_error_contracts(name: str, vector: str) -> None:
    assert_contracts(parse(name, DIMENSION, np.float64), vector)


@pytest.mark.parametrize("vector", named_vectors(DIMENSION))
@pytest.mark.parametrize("name", UNBIASED)
def test_scaled_unbiased_operator_contracts(name: str, vector: str) -> None:
    assert_contracts(Contractive(parse(name, DIMENSION, np.float64)), vector)


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
    assert np.array_equal(Contractive(inner).compress(x, Stream(0)), [0] * 6 + [7, 8])
    assert Contractive(inner).contraction == inner.contraction


def test_top_k_keeps_the_first_of_equal_magnitudes() -> None:
    x = np.array([1.0, -3, 2, 3, -3, 0, 3])
    kept = TopK(7, 3).compress(x, Stream(0))
    assert kept.tolist() == [0, -3, 0, 3, -3, 0, 0]


def test_threshold_keeps_what_is_large_enough() -> None:
    x = np.array([0.5, -1.0, 0.9375, 4.0, 0.0])
    compressor = Threshold(5, 1.0)
    assert compressor.compress(x, Stream(0)).tolist() == [0, -1, 0, 4, 0]
    assert compressor.encode(x * 0.1, Stream(0)) == b""
    assert not compressor.decode(b"").any()
    assert compressor.error_bound == 5
    assert Threshold(5, 0.0).compress(x, Stream(0)).tolist() == x.tolist()


def test_blocks_are_chosen_by_their_norm() -> None:
    x = np.array([3.0, 0, 2.5, 2.5, 1, 1, 5])
    assert BlockTopK(7, 2, 2).compress(x, Stream(0)).tolist() == [0, 0, 2.5, 2.5, 0, 0, 5]
    assert BlockThreshold(7, 3.0, 2).compress(x, Stream(0)).tolist() == [3, 0, 2.5, 2.5, 0, 0, 5]


def test_block_ratio_compares_with_the_parameters() -> None:
    x = np.array([3.0, 0, 2, 2, 1, 1, 0, 0])
    compressor = BlockTopKRatio(8, 1, 2)
    assert compressor.compress(x, Stream(0)).tolist() == [3, 0, 0, 0, 0, 0, 0, 0]
    compressor.follow([30.0, 1, 1, 1, 1e-3, 0, 0, 0])
    assert compressor.compress(x, Stream(0)).tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    # Without parameters there, any update counts for infinitely much, but none for nothing.
    compressor.follow([1.0, 1, 0, 0, 1, 1, 0, 0])
    assert compressor.compress(x, Stream(0)).tolist() == [0, 0, 2, 2, 0, 0, 0, 0]
    assert compressor.contraction == 0


def test_low_rank_keeps_a_matrix_of_that_rank() -> None:
    generator = np.random.default_rng(3)
    matrix = generator.standard_normal((12, 2)) @ generator.standard_normal((2, 9))
    compressor = LowRank(108, 2, rows=12, dtype=np.float64)
    assert np.allclose(compressor.compress(matrix, Stream(0)), matrix, rtol=0, atol=1e-12)


def test_low_rank_warm_start_reaches_the_best_projection() -> None:
    matrix = np.random.default_rng(4).standard_normal((20, 15)) * 0.7 ** np.arange(15)
    singular = np.linalg.svd(matrix, compute_uv=False)
    best = math.sqrt(np.sum(singular[3:] ** 2))
    compressor, stream = LowRank(300, 3, rows=20, dtype=np.float64), Stream(1)
    errors = []
    for _ in range(60):
        payload = compressor.encode(matrix, stream)
        errors.append(np.linalg.norm(compressor.decode(payload) - matrix.reshape(-1)))
        compressor.start = compressor.next_start(payload)
    assert errors[0] > 1.01 * best
    assert errors[-1] == pytest.approx(best, rel=1e-6)


def test_low_rank_survives_a_start_that_the_matrix_maps_to_zero() -> None:
    x = np.zeros(16)
    x[0] = 1.0
    start = np.eye(4)[:, 1:2]
    compressed = LowRank(16, 1, start=start).compress(x, Stream(0))
    assert np.isfinite(compressed).all()
    assert np.linalg.norm(compressed - x) <= 1
