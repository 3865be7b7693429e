"""Where examples come from, how they are divided, and the exact solution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.datasets import dump_svmlight_file, load_breast_cancer
from sklearn.linear_model import Lasso

from sparsewire.errors import DataError
from sparsewire.tools.optimize.problems.examples import (
    by_index,
    by_label,
    from_arrays,
    read_libsvm,
    shuffled,
)
from sparsewire.tools.optimize.problems.losses import LeastSquares, Logistic, NonconvexLogistic
from sparsewire.tools.optimize.problems.reference import GRADIENT_NORM, solve


def test_libsvm_file_reads_back(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(9, 6)) * (random.random((9, 6)) < 0.5)
    features[0, 5] = 1.0
    labels = random.integers(1, 3, 9).astype(float)
    file = tmp_path / "made.libsvm"
    dump_svmlight_file(csr_array(features), labels, str(file), zero_based=False)
    read = read_libsvm(file)
    assert issparse(read.features)
    assert np.allclose(read.features.toarray(), features)
    assert read.labels.tolist() == labels.tolist()
    assert read_libsvm(file, dimension=8).features.shape == (9, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot read"), ("1 2:x\n", "is no LIBSVM"), ("", "no rows"), ("1 1:inf\n", "finite")],
)
def test_unusable_files_are_named(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "bad"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_libsvm(file)


def test_unusable_arrays_are_refused() -> None:
    with pytest.raises(DataError, match="shape"):
        from_arrays(np.ones((3, 2)), [1, 1])
    with pytest.raises(DataError, match="finite"):
        from_arrays([[1.0, np.nan]], [1])


def test_unit_rows_have_length_one() -> None:
    for rows in (np.array([[3.0, 4.0], [0.0, 0.0]]), csr_array([[3.0, 4.0], [0.0, 0.0]])):
        scaled = from_arrays(rows, [1, 2]).with_unit_rows().features
        dense = scaled.toarray() if issparse(scaled) else scaled
        assert dense.tolist() == [[0.6, 0.8], [0.0, 0.0]]


def test_partitions_deal_every_row_once() -> None:
    labels = np.array([2.0, 1, 2, 1, 1, 2, 1])
    for parts in (by_index(7, 3), by_label(labels, 3), shuffled(7, 3, seed=2)):
        assert sorted(map(len, parts)) == [2, 2, 3]
        assert sorted(np.concatenate(parts).tolist()) == list(range(7))
    assert [part.tolist() for part in by_index(7, 3, equal=True)] == [[0, 1], [2, 3], [4, 5]]
    assert [part.tolist() for part in by_label(labels, 2)] == [[1, 3, 4, 6], [0, 2, 5]]
    assert np.concatenate(shuffled(70, 3, seed=2)).tolist() != list(range(70))
    with pytest.raises(ValueError, match="cannot be divided"):
        by_index(2, 3)


def test_newton_finds_a_point_without_gradient() -> None:
    data = from_arrays(*load_breast_cancer(return_X_y=True)).with_unit_rows()
    labels = np.where(data.labels == 1, 1.0, -1.0)
    problem = Logistic(from_arrays(data.features, labels), by_label(labels, 5), l2=1e-3)
    assert np.linalg.norm(problem.full_gradient(solve(problem))) <= GRADIENT_NORM


def test_proximal_gradient_agrees_with_another_solver() -> None:
    random = np.random.default_rng(8)
    features = random.normal(size=(60, 20))
    labels = features[:, :3].sum(axis=1) + 0.1 * random.normal(size=60)
    problem = LeastSquares(from_arrays(features, labels), by_index(60, 4), l1=0.05)
    x = solve(problem)
    other = Lasso(alpha=0.05, fit_intercept=False, tol=1e-14, max_iter=100_000)
    other.fit(features, labels)
    assert x == pytest.approx(other.coef_, abs=1e-10)
    assert (x == 0).tolist() == (other.coef_ == 0).tolist()
    assert 3 <= np.count_nonzero(x) < 20
    # At the solution a proximal step stands still, and F is least.
    step = problem.prox(x - problem.full_gradient(x) / problem.L, 1 / problem.L)
    assert np.abs(step - x).max() < 1e-15
    assert problem.composite(x) < min(problem.composite(x + 1e-3), problem.composite(0.999 * x))


def test_problems_without_a_unique_solution_are_refused() -> None:
    data = from_arrays(np.ones((3, 2)), [1.0, -1.0, 1.0])
    for problem in (
        Logistic(data, by_index(3, 1)),
        NonconvexLogistic(data, by_index(3, 1), weight=1.0),
    ):
        with pytest.raises(ValueError, match="strongly convex"):
            solve(problem)
