"""DIANA's step size where workers are less convex than their mean."""

from __future__ import annotations

import numpy as np
import pytest
from convergence import slope, squared_distances

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.seeded import Bernoulli, RandK
from sparsewire.tools.optimize.methods.diana import Diana
from sparsewire.tools.optimize.methods.method import Theory
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.problems.examples import by_index, from_arrays
from sparsewire.tools.optimize.problems.losses import LeastSquares
from sparsewire.tools.optimize.problems.reference import solve

ROWS, DIMENSION, OMEGA = 48, 6, 2.0
TWO_OF_SIX = RandK(DIMENSION, 2, dtype=np.float64)


def least_squares(workers: int, l2: float = 0.0) -> LeastSquares:
    random = np.random.default_rng(9)
    features = random.normal(size=(ROWS, DIMENSION))
    return LeastSquares(
        from_arrays(features, random.normal(size=ROWS)), by_index(ROWS, workers), l2=l2
    )


def theory(problem: LeastSquares, operator: Compressor = TWO_OF_SIX) -> Theory:
    return Diana(problem, Simulated(problem.workers), operator).theory()


def test_two_of_six_have_this_variance() -> None:
    assert TWO_OF_SIX.omega == OMEGA


def test_a_worker_that_is_not_strongly_convex_shortens_the_step() -> None:
    # Three rows of six elements on each of 16 workers.
    problem = least_squares(16)
    assert problem.mu > 0.1
    assert max(problem.mu_i) == 0
    found = theory(problem)
    assert found.gamma == pytest.approx(1 / (max(problem.L_i) * (1 + 6 * OMEGA / 16)))
    assert found.rate == pytest.approx(found.gamma * problem.mu)


def test_the_least_convex_worker_counts() -> None:
    problem = least_squares(2, l2=0.5)
    least = min(problem.mu_i)
    assert problem.mu / 2 < least < problem.mu
    found = theory(problem)
    assert found.gamma == pytest.approx(
        2 / ((least + max(problem.L_i)) * (1 + 6 * OMEGA / 2)), rel=1e-12
    )
    assert found.rate == pytest.approx(found.gamma * least)
    # Where it is the l2 term that makes all of them convex, both are the same.
    strong = least_squares(16, l2=100.0)
    whole = RandK(DIMENSION, DIMENSION, dtype=np.float64)
    expected = min(2 / (100 + max(strong.L_i)), 1 / 200)
    assert theory(strong, whole).gamma == pytest.approx(expected)


def test_shifts_limit_the_step() -> None:
    problem = least_squares(16)
    seldom = Bernoulli(DIMENSION, 1e-4, dtype=np.float64)
    assert theory(problem, seldom).gamma <= 1 / (seldom.omega + 1) / (2 * problem.mu)


@pytest.mark.parametrize("workers", [2, 16])
def test_it_is_as_fast_as_predicted(workers: int) -> None:
    problem = least_squares(workers)
    run = Diana(problem, Simulated(workers), TWO_OF_SIX, seed=1)
    distances = squared_distances(run, solve(problem), 3000)
    assert 1 <= slope(distances) / run.rate <= 4
