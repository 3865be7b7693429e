"""Problems: gradients against differences, constants against spectra, sparse against dense."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsewire.errors import DataError
from sparsewire.tools.optimize.problems.examples import Examples, by_index, from_arrays
from sparsewire.tools.optimize.problems.linear_model import (
    LinearModel,
    extreme_eigenvalues,
    largest_bound,
)
from sparsewire.tools.optimize.problems.losses import LeastSquares, Logistic, NonconvexLogistic

ROWS, DIMENSION, WORKERS = 53, 17, 4
KINDS = ["dense", "sparse"]


def made_examples(kind: str) -> Examples:
    random = np.random.default_rng(3)
    features = random.normal(size=(ROWS, DIMENSION)) * (random.random((ROWS, DIMENSION)) < 0.4)
    # A row and a column of zeros must do no harm.
    features[7] = 0
    features[:, 5] = 0
    labels = np.where(random.random(ROWS) < 0.5, -1.0, 1.0)
    return from_arrays(csr_array(features) if kind == "sparse" else features, labels)


MODELS: dict[str, Callable[[str], LinearModel]] = {
    "logistic": lambda kind: Logistic(made_examples(kind), by_index(ROWS, WORKERS), l2=0.02),
    "least squares": lambda kind: LeastSquares(
        made_examples(kind), by_index(ROWS, WORKERS), l2=0.3
    ),
    "nonconvex": lambda kind: NonconvexLogistic(
        made_examples(kind), by_index(ROWS, WORKERS), weight=0.1
    ),
}
POINT = np.random.default_rng(4).normal(size=DIMENSION)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Callable[[str], LinearModel]:
    return MODELS[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_the_loss(model: Callable[[str], LinearModel], kind: str) -> None:
    problem, step = model(kind), 1e-5
    differences = [
        (problem.loss(POINT + step * unit) - problem.loss(POINT - step * unit)) / (2 * step)
        for unit in np.eye(DIMENSION)
    ]
    assert problem.full_gradient(POINT) == pytest.approx(differences, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_hessian_is_that_of_the_gradient(model: Callable[[str], LinearModel], kind: str) -> None:
    problem, step = model(kind), 1e-5
    columns = [
        (problem.full_gradient(POINT + step * unit) - problem.full_gradient(POINT - step * unit))
        / (2 * step)
        for unit in np.eye(DIMENSION)
    ]
    assert np.allclose(problem.hessian(POINT), np.transpose(columns), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_components_add_up_to_each_worker(model: Callable[[str], LinearModel], kind: str) -> None:
    problem = model(kind)
    for i, m in enumerate(problem.m):
        each = problem.sample_gradients(i, np.arange(m), POINT)
        assert each.mean(axis=0) == pytest.approx(problem.gradients([i], POINT)[0], abs=1e-14)
        assert problem.sample_gradients(i, np.array([2]), POINT)[0].tolist() == each[2].tolist()
    js = np.array([[3, 0, 3], [1, 2, 9]])
    expected = [
        problem.sample_gradients(i, j, POINT).mean(axis=0) for i, j in zip([2, 0], js, strict=True)
    ]
    assert np.allclose(problem.batch_gradients([2, 0], js, POINT), expected, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_other_workers(
    model: Callable[[str], LinearModel], kind: str
) -> None:
    problem = model(kind)
    together = problem.gradients(range(WORKERS), POINT)
    js = np.arange(2 * WORKERS).reshape(WORKERS, 2)
    batches = problem.batch_gradients(range(WORKERS), js, POINT)
    for i in range(WORKERS):
        assert problem.gradients([i], POINT)[0].tobytes() == together[i].tobytes()
        alone = problem.batch_gradients([i], js[[i]], POINT)[0]
        assert alone.tobytes() == batches[i].tobytes()
    assert problem.gradients([3, 0, 2, 1], POINT).tobytes() == together[[3, 0, 2, 1]].tobytes()


def test_sparse_and_dense_rows_are_one_problem(model: Callable[[str], LinearModel]) -> None:
    sparse, dense = model("sparse"), model("dense")
    assert sparse.loss(POINT) == pytest.approx(dense.loss(POINT))
    assert np.allclose(sparse.gradients([3, 1], POINT), dense.gradients([3, 1], POINT))
    assert np.allclose(sparse.hessian(POINT), dense.hessian(POINT))
    constants = (sparse.L, *sparse.L_i, sparse.L_max, sparse.mu, *sparse.mu_i)
    expected = (dense.L, *dense.L_i, dense.L_max, dense.mu, *dense.mu_i)
    assert constants == pytest.approx(expected)


def test_constants_of_least_squares_are_the_spectrum() -> None:
    problem = MODELS["least squares"]("dense")
    spectrum = np.linalg.eigvalsh(problem.hessian(POINT))
    assert (problem.mu, problem.L) == pytest.approx((spectrum[0], spectrum[-1]))
    features = made_examples("dense").features
    first = np.linalg.norm(features[by_index(ROWS, WORKERS)[0]], 2) ** 2 / problem.m[0]
    assert problem.L_i[0] == pytest.approx(first + 0.3)
    # Fewer rows than columns on every worker: nothing but the l2 term.
    assert problem.mu_i == pytest.approx((0.3,) * WORKERS)
    # Without the column of zeros, and with enough rows, there is more.
    features = np.delete(features, 5, axis=1)
    parts = by_index(ROWS, 2)
    problem = LeastSquares(from_arrays(features, np.zeros(ROWS)), parts, l2=0.3)
    for part, mu in zip(parts, problem.mu_i, strict=True):
        least = np.linalg.svd(features[part], compute_uv=False)[-1] ** 2 / len(part)
        assert least > 1e-3
        assert mu == pytest.approx(least + 0.3)
    assert problem.L_max == pytest.approx(np.square(features).sum(axis=1).max() + 0.3)


def test_constants_bound_every_hessian(model: Callable[[str], LinearModel]) -> None:
    problem = model("dense")
    random = np.random.default_rng(5)
    # Near 0 the logistic loss is bent most; far away least.
    for scale in (0, 0.1, 1, 10, 1000):
        spectrum = np.linalg.eigvalsh(problem.hessian(scale * random.normal(size=DIMENSION)))
        assert np.abs(spectrum).max() <= problem.L * (1 + 1e-12)
        assert spectrum[0] >= problem.mu * (1 - 1e-12) or problem.mu == 0
    assert problem.L <= max(problem.L_i) <= problem.L_max
    assert min(problem.mu_i) <= problem.mu


def test_large_matrices_get_a_safe_bound() -> None:
    random = np.random.default_rng(6)
    for lowest in (0.0, -1.0):
        matrix = random.uniform(lowest, 1, (60, 40)) * (random.random((60, 40)) < 0.2)
        largest = extreme_eigenvalues(matrix)[1]
        assert largest == pytest.approx(np.linalg.norm(matrix, 2) ** 2)
        for form in (matrix, csr_array(matrix)):
            assert largest <= largest_bound(form) * (1 + 1e-12)
    # Without negative values the bound is tight.
    matrix = np.abs(matrix)
    assert largest_bound(matrix) == pytest.approx(np.linalg.norm(matrix, 2) ** 2, rel=1e-3)


def test_arguments_are_checked() -> None:
    data = made_examples("dense")
    with pytest.raises(ValueError, match="at least one row"):
        Logistic(data, [np.arange(3), np.arange(0)])
    with pytest.raises(ValueError, match="l2 and l1"):
        LeastSquares(data, by_index(ROWS, 2), l1=-1)
    with pytest.raises(ValueError, match="weight"):
        NonconvexLogistic(data, by_index(ROWS, 2), weight=-1)
    with pytest.raises(DataError, match="-1 and \\+1"):
        Logistic(Examples(data.features, data.labels + 1), by_index(ROWS, 2))
