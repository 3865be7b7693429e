"""Losses, sparse gradients and bounds, against finite differences and dense computations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, check_grad

import sparsewire
from sparsewire.optimize.train.column_block import ColumnBlock
from sparsewire.optimize.train.data import Csr, load
from sparsewire.optimize.train.losses import LOSSES
from sparsewire.optimize.train.problem import Problem
from sparsewire.optimize.train.request import Request
from sparsewire.optimize.train.scaled_weights import ScaledWeights
from sparsewire.optimize.train.smoothness import expected_smoothness

Floats = npt.NDArray[np.float64]


@pytest.fixture(params=LOSSES)
def problem(request: pytest.FixtureRequest) -> Problem:
    return Problem(LOSSES[request.param], l2=0.02, rows=300, features=40)


@pytest.fixture
def rows(data: Path) -> Csr:
    return load(Request(str(data))).rows


def objective(problem: Problem, rows: Csr, weights: Floats) -> float:
    losses = problem.loss.value(rows @ weights)
    return problem.objective(float(losses.sum()), float(weights @ weights))


@pytest.mark.parametrize("name", LOSSES)
@given(margin=st.floats(-30, 30), change=st.floats(-5, 5))
def test_slope_and_curvature_bound_a_loss_from_below_and_above(
    name: str, margin: float, change: float
) -> None:
    loss = LOSSES[name]
    here, there = np.array([margin]), np.array([margin + change])
    tangent = loss.value(here) + loss.slope(here) * change
    assert loss.value(there) >= tangent - 1e-9
    assert loss.value(there) <= tangent + loss.curvature / 2 * change**2 + 1e-9


@pytest.mark.parametrize("name", LOSSES)
def test_large_margins_overflow_nothing(name: str) -> None:
    margins = np.array([-1e4, 1e4])
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(LOSSES[name].value(margins)).all()
        assert np.isfinite(LOSSES[name].slope(margins)).all()


def test_sparse_gradient_agrees_with_finite_differences(problem: Problem, rows: Csr) -> None:
    weights = np.random.default_rng(0).normal(size=40)
    batch = rows[10:14]

    def loss(w: Floats) -> float:
        return 3 * float(problem.loss.value(batch @ w).sum())

    gradient = problem.loss_gradient(batch, batch @ weights, 3.0)
    expected = approx_fprime(weights, loss, 1e-7)
    np.testing.assert_allclose(gradient.to_dense(), expected, atol=1e-4)
    assert gradient.values.dtype == np.float32


def test_gradient_names_only_features_of_the_batch(problem: Problem, rows: Csr) -> None:
    batch = rows[10:14]
    gradient = problem.loss_gradient(batch, np.zeros(4), 1.0)
    assert 0 < gradient.nnz < 40
    np.testing.assert_array_equal(gradient.indices, np.unique(batch.indices))


def test_empty_batch_gives_an_empty_gradient(problem: Problem, rows: Csr) -> None:
    gradient = problem.loss_gradient(rows[:0], np.zeros(0), 1.0)
    assert (gradient.nnz, gradient.length) == (0, 40)


def test_scaled_weights_do_what_dense_ones_do(rows: Csr) -> None:
    random = np.random.default_rng(0)
    weights, expected = ScaledWeights(40), np.zeros(40)
    for step in range(200):
        # In all, the scale shrinks by far more than it can hold at once.
        change = random.normal(size=40) * (random.random(40) < 0.2)
        sparse = sparsewire.SparseVector.from_dense(change)
        weights.shrink(0.6)
        weights.add(sparse if step % 2 else change, -0.3)
        expected = 0.6 * expected - 0.3 * change
        np.testing.assert_allclose(weights.dense(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights.margins(rows), rows @ expected, rtol=1e-9, atol=1e-12)


def test_partial_gradient_of_a_block_agrees_with_finite_differences(
    problem: Problem, rows: Csr
) -> None:
    block = ColumnBlock(problem, rows.tocsc(), np.array([3, 7, 8, 21]))
    start = np.random.default_rng(0).normal(size=40)

    def whole(part: Floats) -> Floats:
        return np.concatenate(
            [start[:3], part[:1], start[4:7], part[1:3], start[9:21], part[3:], start[22:]]
        )

    def gradient(part: Floats) -> Floats:
        return block.gradient((rows @ whole(part))[block.rows], part)

    def value(part: Floats) -> float:
        return objective(problem, rows, whole(part))

    assert check_grad(value, gradient, start[block.columns]) < 1e-5


def test_curvature_of_a_block_bounds_every_change(problem: Problem, rows: Csr) -> None:
    random = np.random.default_rng(0)
    block = ColumnBlock(problem, rows.tocsc(), np.arange(0, 40, 3))
    for scale in np.logspace(-3, 2, 30):
        weights, change = random.normal(size=40), np.zeros(40)
        change[block.columns] = random.normal(scale=scale, size=len(block.columns))
        margins = rows @ weights
        gradient = block.gradient(margins[block.rows], weights[block.columns])
        part = change[block.columns]
        bound = objective(problem, rows, weights) + gradient @ part
        bound += 0.5 * float(block.curvature @ part**2)
        assert objective(problem, rows, weights + change) <= bound * (1 + 1e-12)
        np.testing.assert_allclose(block.effect(part), (rows @ change)[block.rows], atol=1e-12)


def test_columns_of_zeros_do_not_move_without_l2(rows: Csr) -> None:
    problem = Problem(LOSSES["logistic"], l2=0.0, rows=300, features=40)
    empty = rows.multiply(np.arange(40) != 7).tocsc()
    empty.eliminate_zeros()
    block = ColumnBlock(problem, empty, np.array([6, 7]))
    change = block.minimise(block.gradient(np.zeros(len(block.rows)), np.zeros(2)))
    assert change[0] != 0
    assert change[1] == 0


def dense_smoothness(problem: Problem, rows: Csr) -> tuple[float, float]:
    """The constants of the whole objective and of its worst row, by dense linear algebra."""
    c, dense = problem.loss.curvature, rows.toarray()
    whole = c * np.linalg.eigvalsh(dense.T @ dense).max() / problem.rows + problem.l2
    return whole, c * (dense**2).sum(axis=1).max() + problem.l2


@pytest.mark.parametrize("batch", [1, 20, 300, 1000])
def test_smoothness_lies_between_the_worst_row_and_the_whole(
    problem: Problem, rows: Csr, batch: int
) -> None:
    whole, worst = dense_smoothness(problem, rows)
    with sparsewire.init(rank=0, world_size=1) as comm:
        found = expected_smoothness(comm, problem, rows, batch)
    expected: dict[int, Any] = {1: worst, 300: whole, 1000: whole}
    if batch in expected:
        assert found == pytest.approx(expected[batch], rel=1e-2)
    else:
        assert whole < found < worst
