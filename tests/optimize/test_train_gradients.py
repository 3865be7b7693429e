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
from scipy.sparse import csr_array

import sparsewire
from sparsewire.tools.optimize.problems.examples import Examples, Rows, by_index
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.task import MODELS, load
from sparsewire.tools.optimize.train.block_descent import ColumnBlock
from sparsewire.tools.optimize.train.sgd import ScaledWeights, expected_smoothness, loss_gradient
from sparsewire.tools.optimize.train.training import Training

Floats = npt.NDArray[np.float64]


@pytest.fixture(params=Training.models)
def problem(request: pytest.FixtureRequest, data: Path) -> LinearModel:
    return made(request.param, load(Training(str(data))).examples, l2=0.02)


@pytest.fixture
def rows(problem: LinearModel) -> Rows:
    return problem.examples.features


def made(model: str, examples: Examples, l2: float) -> LinearModel:
    return MODELS[model](examples, by_index(len(examples.labels), 1), l2=l2)


ONE_ROW = Examples(np.ones((1, 1)), np.ones(1))


@pytest.mark.parametrize("name", MODELS)
@given(
    margin=st.floats(-30, 30),
    change=st.floats(-5, 5),
    label=st.sampled_from([-1.0, 1.0]),
)
def test_slope_and_curvature_bound_a_loss_from_below_and_above(
    name: str, margin: float, change: float, label: float
) -> None:
    loss, labels = made(name, ONE_ROW, l2=0.0), np.array([label])
    here, there = np.array([margin]), np.array([margin + change])
    tangent = loss.values(here, labels) + loss.slopes(here, labels) * change
    assert loss.values(there, labels) >= tangent - 1e-9
    assert loss.values(there, labels) <= tangent + loss.curvature / 2 * change**2 + 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_large_margins_overflow_nothing(name: str) -> None:
    loss, margins, labels = made(name, ONE_ROW, l2=0.0), np.array([-1e4, 1e4]), np.ones(2)
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(loss.values(margins, labels)).all()
        assert np.isfinite(loss.slopes(margins, labels)).all()


def test_sparse_gradient_agrees_with_finite_differences(problem: LinearModel) -> None:
    weights = np.random.default_rng(0).normal(size=40)
    batch = problem.examples.select(slice(10, 14))

    def loss(w: Floats) -> float:
        return 3 * float(problem.values(batch.features @ w, batch.labels).sum())

    gradient = loss_gradient(problem, batch, batch.features @ weights, 3.0)
    expected = approx_fprime(weights, loss, 1e-7)
    np.testing.assert_allclose(gradient.to_dense(), expected, atol=1e-4)
    assert gradient.values.dtype == np.float32


def test_gradient_names_only_features_of_the_batch(problem: LinearModel) -> None:
    batch = problem.examples.select(slice(10, 14))
    gradient = loss_gradient(problem, batch, np.zeros(4), 1.0)
    assert 0 < gradient.nnz < 40
    np.testing.assert_array_equal(gradient.indices, np.unique(batch.features.indices))


def test_empty_batch_gives_an_empty_gradient(problem: LinearModel) -> None:
    gradient = loss_gradient(problem, problem.examples.select(slice(0)), np.zeros(0), 1.0)
    assert (gradient.nnz, gradient.length) == (0, 40)


def test_scaled_weights_do_what_dense_ones_do(rows: Rows) -> None:
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
    problem: LinearModel, rows: Rows
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
        return problem.loss(whole(part))

    assert check_grad(value, gradient, start[block.columns]) < 1e-5


def test_curvature_of_a_block_bounds_every_change(problem: LinearModel, rows: Rows) -> None:
    random = np.random.default_rng(0)
    block = ColumnBlock(problem, rows.tocsc(), np.arange(0, 40, 3))
    for scale in np.logspace(-3, 2, 30):
        weights, change = random.normal(size=40), np.zeros(40)
        change[block.columns] = random.normal(scale=scale, size=len(block.columns))
        margins = rows @ weights
        gradient = block.gradient(margins[block.rows], weights[block.columns])
        part = change[block.columns]
        bound = problem.loss(weights) + gradient @ part
        bound += 0.5 * float(block.curvature @ part**2)
        assert problem.loss(weights + change) <= bound * (1 + 1e-12)
        np.testing.assert_allclose(block.effect(part), (rows @ change)[block.rows], atol=1e-12)


def test_columns_of_zeros_do_not_move_without_l2(rows: Rows) -> None:
    empty = csr_array(rows.multiply(np.arange(40) != 7))
    empty.eliminate_zeros()
    problem = made("logistic", Examples(empty, np.ones(300)), l2=0.0)
    block = ColumnBlock(problem, empty.tocsc(), np.array([6, 7]))
    change = block.minimise(block.gradient(np.zeros(len(block.rows)), np.zeros(2)))
    assert change[0] != 0
    assert change[1] == 0


def dense_smoothness(problem: LinearModel, rows: Rows) -> tuple[float, float]:
    """The constants of the whole objective and of its worst row, by dense linear algebra."""
    c, dense = problem.curvature, rows.toarray()
    whole = c * np.linalg.eigvalsh(dense.T @ dense).max() / len(dense) + problem.l2
    return whole, c * (dense**2).sum(axis=1).max() + problem.l2


@pytest.mark.parametrize("batch", [1, 20, 300, 1000])
def test_smoothness_lies_between_the_worst_row_and_the_whole(
    problem: LinearModel, rows: Rows, batch: int
) -> None:
    whole, worst = dense_smoothness(problem, rows)
    with sparsewire.init(rank=0, world_size=1) as comm:
        found = expected_smoothness(comm, problem, rows, batch)
    expected: dict[int, Any] = {1: worst, 300: whole, 1000: whole}
    if batch in expected:
        assert found == pytest.approx(expected[batch], rel=1e-2)
    else:
        assert whole < found < worst
