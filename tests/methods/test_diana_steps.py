"""DIANA's step size where workers are less convex than their mean."""

from __future__ import annotations

import numpy as np
import pytest
from convergence import slope, squared_distances

from sparsewire.compress.seeded import RandK
from sparsewire.optimize.methods import diana
from sparsewire.optimize.methods.diana import Diana
from sparsewire.optimize.methods.network import Simulated
from sparsewire.optimize.problems.least_squares import LeastSquares
from sparsewire.optimize.problems.partition import by_index
from sparsewire.optimize.problems.reference import solve
from sparsewire.optimize.problems.sources import from_arrays

ROWS, DIMENSION, OMEGA = 48, 6, 2.0


def least_squares(workers: int, l2: float = 0.0) -> LeastSquares:
    random = np.random.default_rng(9)
    features = random.normal(size=(ROWS, DIMENSION))
    return LeastSquares(
        from_arrays(features, random.normal(size=ROWS)), by_index(ROWS, workers), l2=l2
    )


def test_a_worker_that_is_not_strongly_convex_shortens_the_step() -> None:
    # Three rows of six elements on each of 16 workers.
    problem = least_squares(16)
    assert problem.mu > 0.1
    assert max(problem.mu_i) == 0
    found = diana.theory(problem, OMEGA)
    assert found.gamma == pytest.approx(1 / (max(problem.L_i) * (1 + 6 * OMEGA / 16)))
    assert found.rate == pytest.approx(found.gamma * problem.mu)


def test_the_least_convex_worker_counts() -> None:
    problem = least_squares(2, l2=0.5)
    least = min(problem.mu_i)
    assert problem.mu / 2 < least < problem.mu
    found = diana.theory(problem, OMEGA)
    assert found.gamma == pytest.approx(
        2 / ((least + max(problem.L_i)) * (1 + 6 * OMEGA / 2)), rel=1e-12
    )
    assert found.rate == pytest.approx(found.gamma * least)
    # Where it is the l2 term that makes all of them convex, both are the same.
    strong = least_squares(16, l2=100.0)
    assert diana.theory(strong, 0.0).gamma == pytest.approx(
        min(2 / (100 + max(strong.L_i)), 1 / 200)
    )


def test_shifts_limit_the_step() -> None:
    problem = least_squares(16)
    omega = 1e4
    assert diana.theory(problem, omega).gamma <= 1 / (omega + 1) / (2 * problem.mu)


@pytest.mark.parametrize("workers", [2, 16])
def test_it_is_as_fast_as_predicted(workers: int) -> None:
    problem = least_squares(workers)
    operator = RandK(DIMENSION, 2, dtype=np.float64)
    run = Diana(problem, Simulated(workers), operator, seed=1)
    distances = squared_distances(run, solve(problem), 3000)
    assert 1 <= slope(distances) / run.rate <= 4
