"""How fast the independent block methods converge, against what theory predicts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from acceptance import CONSTRUCTED, OTHERS, Check, cases
from convergence import rounds_to, slope, squared_distances
from data_sets import examples, logistic

from sparsewire.compress.seeded import Bernoulli, RandK, SeededSparsifier
from sparsewire.tools.optimize.methods.blocks import AsynchronousIsgd, Iasgd, Ibcd, Ibgd, Isgd
from sparsewire.tools.optimize.methods.diana import Isega
from sparsewire.tools.optimize.methods.isaga import DistributedIsaga, Isaga
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.problems.examples import by_index, by_label, from_arrays
from sparsewire.tools.optimize.problems.losses import LeastSquares, Logistic, NonconvexLogistic
from sparsewire.tools.optimize.problems.problem import Floats, Problem
from sparsewire.tools.optimize.problems.reference import solve

WORKERS = 16
FEW = 8
DIMENSION = 16


@cache
def interpolating(rows: int = 64, workers: int = WORKERS) -> tuple[LeastSquares, Floats]:
    """A quadratic that all workers minimise at the same point, and that point."""
    random = np.random.default_rng(0)
    features = random.normal(size=(workers * rows, DIMENSION))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    solution = random.normal(size=DIMENSION)
    data = from_arrays(features, features @ solution)
    return LeastSquares(data, by_index(workers * rows, workers)), solution


@cache
def heterogeneous() -> tuple[Logistic, Floats]:
    problem = logistic("breast_cancer", FEW, 0.05)
    return problem, solve(problem)


def blocks(count: int) -> RandK:
    """`count` of 16 blocks."""
    return RandK(DIMENSION, count, DIMENSION // WORKERS, np.float64)


BLOCK_CHOICES = [
    *[pytest.param(blocks(count), id=f"{count} of 16") for count in (16, 8, 4, 1)],
    *[
        pytest.param(Bernoulli(DIMENSION, p, 1, np.float64), id=f"Bernoulli {p}")
        for p in (1 / 2, 1 / 16)
    ],
]


@pytest.mark.parametrize("sparsifier", BLOCK_CHOICES)
def test_ibcd_converges_as_predicted_where_workers_agree(sparsifier: SeededSparsifier) -> None:
    problem, solution = interpolating()
    method = Ibcd(problem, Simulated(WORKERS), sparsifier, seed=1)
    measured = slope(squared_distances(method, solution, 400))
    assert method.rate is not None
    Check(9, CONSTRUCTED).between("IBCD: slope / rate", measured / method.rate, 1, 3)


def test_one_block_of_n_costs_a_constant_factor_of_steps() -> None:
    problem, solution = interpolating()
    slopes = [
        slope(squared_distances(Ibcd(problem, Simulated(WORKERS), blocks(count)), solution, 400))
        for count in (16, 1)
    ]
    assert slopes[0] < 4 * slopes[1]


CASES = cases(
    [("breast_cancer", FEW, 0.05, 1600)],
    [("mushrooms", 20, 1e-3, 60_000), *((name, 20, 2e-3, 30_000) for name in OTHERS)],
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [Ibcd, Ibgd, DistributedIsaga, Iasgd])
def test_methods_without_shifts_stall_where_workers_disagree(
    kind: type[Ibcd] | type[DistributedIsaga] | type[Iasgd], case: tuple[str, int, float, int]
) -> None:
    name, workers, l2, _ = case
    problem = logistic(name, workers, l2)
    solution = solve(problem)
    # Close to the solution, so that what is left is not the way to it.
    start = solution + 1e-6
    method = kind(problem, Simulated(workers), x0=start, seed=1)
    distances = squared_distances(method, solution, 300)
    check, label = Check(9, name), kind.__name__
    check.at_least(f"{label} on workers that disagree: squared distance", distances[-1], 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_isega_converges_as_predicted(case: tuple[str, int, float, int]) -> None:
    name, workers, l2, steps = case
    problem, check = logistic(name, workers, l2), Check(10, name)
    method = Isega(problem, Simulated(workers), seed=1)
    distances = squared_distances(method, solve(problem), steps)
    check.curve("ISEGA", distances, 10)
    ratio = slope(distances) / (method.gamma * problem.mu)
    check.between("ISEGA: slope / rate", ratio, 1, 4)
    check.at_most("ISEGA: rounds to 1e-20", rounds_to(1e-20, distances), 60_000)


def saga(problem: Problem, solution: Floats, steps: int, every: int, seed: int) -> Floats:
    """Squared distances of SAGA with one component a step, gamma = 1/(4 L)."""
    size, total = problem.m[0], sum(problem.m)
    random = np.random.default_rng(seed)
    x, table = np.zeros(problem.dimension), np.zeros((total, problem.dimension))
    mean, distances = np.zeros(problem.dimension), [np.square(solution).sum()]
    for step, j in enumerate(random.integers(total, size=steps), 1):
        change = problem.batch_gradients([j // size], np.array([[j % size]]), x)[0] - table[j]
        x = x - (change + mean) / (4 * problem.L_max)
        table[j] += change
        mean += change / total
        if step % every == 0:
            distances.append(np.square(x - solution).sum())
    return np.array(distances)


SHARED = cases(
    [("breast_cancer", FEW, 0.004, 8, 10)],
    [("mushrooms", 20, 2.5e-4, 50, 100), *((name, 20, 2.5e-4, 25, 50) for name in OTHERS)],
)
EPOCHS = 24


@pytest.mark.parametrize("case", SHARED)
@pytest.mark.parametrize("seed", [1, 2])
def test_isaga_with_one_block_of_n_is_as_fast_as_saga(
    case: tuple[str, int, float, int, int], seed: int
) -> None:
    """In steps: an epoch has N of them, of one component in SAGA, and of n blocks in ISAGA."""
    name, workers, l2, rows, every = case
    problem, check = logistic(name, workers, l2, rows=rows), Check(11, name)
    solution, total = solve(problem), sum(problem.m)
    method = Isaga(problem, Simulated(workers), seed=seed)
    distances = squared_distances(method, solution, EPOCHS * total, every)
    theirs = saga(problem, solution, EPOCHS * total, every, seed)
    check.curve(f"ISAGA, seed {seed}", distances, every)
    check.curve(f"SAGA, seed {seed}", theirs, every)
    assert method.rate is not None
    measured, least = (
        slope(distances, every),
        min(problem.mu / (5 * problem.L_max), 1 / (3 * total)),
    )
    check.at_least("ISAGA: slope / rate", measured / least, 1)
    assert measured >= method.rate
    check.between("slope of ISAGA / SAGA", measured / slope(theirs, every), 0.6, 1.3)


def test_distributed_isaga_converges_as_predicted_where_workers_agree() -> None:
    problem, solution = interpolating(8)
    method = DistributedIsaga(problem, Simulated(WORKERS), seed=1)
    measured = slope(squared_distances(method, solution, 1000))
    assert method.rate is not None
    assert measured >= method.rate


def squared_samples(problem: Problem, x: Floats, centre: Floats) -> float:
    """The mean over workers and their components of |grad f_ij(x) - centre|^2."""
    samples = [problem.sample_gradients(i, np.arange(m), x) for i, m in enumerate(problem.m)]
    return float(np.mean([np.square(each - centre).sum(axis=1).mean() for each in samples]))


def test_isgd_comes_down_to_its_floor() -> None:
    problem, solution = heterogeneous()
    method = Isgd(problem, Simulated(FEW), seed=1)
    noise = squared_samples(problem, solution, np.zeros(problem.dimension))
    bound = 2 * method.gamma * noise / (FEW * problem.mu)
    distances = squared_distances(method, solution, 800)
    floor = distances[len(distances) // 2 :].mean()
    assert bound / 1000 <= floor <= bound


@pytest.mark.parametrize("delay", [0, 2, 10])
def test_isgd_converges_with_delays_where_gradients_vanish(delay: int) -> None:
    problem, solution = interpolating()
    method = AsynchronousIsgd(problem, Simulated(WORKERS), blocks(1), delay=delay, seed=1)
    measured = slope(squared_distances(method, solution, 500))
    assert method.rate is not None
    assert 1 <= measured / method.rate <= 4


def test_delays_need_shorter_steps() -> None:
    problem, solution = interpolating()
    too_long = Isgd(problem, Simulated(WORKERS), blocks(16)).gamma
    lengths = [
        squared_distances(
            AsynchronousIsgd(problem, Simulated(WORKERS), blocks(16), delay=50, gamma=gamma),
            solution,
            300,
        )[-1]
        for gamma in (None, too_long)
    ]
    start = np.square(solution).sum()
    assert lengths[0] < start
    assert lengths[1] > 1000 * start


def test_isgd_stays_below_its_nonconvex_bound() -> None:
    data = examples("breast_cancer")
    parts = by_label(data.labels, FEW, equal=True)
    problem = NonconvexLogistic(data, parts, weight=0.01)
    method = Isgd(problem, Simulated(FEW), seed=1)
    start, steps, squares, spreads = problem.loss(method.x), 200, [], []
    for _ in range(steps):
        gradient = problem.full_gradient(method.x)
        squares.append(gradient @ gradient)
        draws = [
            problem.sample_gradients(i, np.arange(m), method.x) for i, m in enumerate(problem.m)
        ]
        spreads.append(np.square(np.concatenate(draws) - gradient).sum(axis=1).mean())
        method.step()
    bound = 2 * start / (method.gamma * method.tau * steps)
    bound += method.gamma * problem.L * max(spreads) / FEW
    assert np.mean(squares) <= bound


@cache
def equal_data() -> tuple[LeastSquares, Floats]:
    """An ill-conditioned quadratic that every worker has a copy of, and its solution."""
    random = np.random.default_rng(0)
    scales = np.geomspace(1, 0.03, DIMENSION)
    features = random.normal(size=(64, DIMENSION)) * scales
    solution = random.normal(size=DIMENSION)
    data = from_arrays(features, features @ solution)
    return LeastSquares(data, [np.arange(64)] * WORKERS), solution


@pytest.mark.parametrize("count", [16, 1])
def test_acceleration_is_as_fast_as_predicted(count: int) -> None:
    problem, solution = equal_data()
    method = Iasgd(problem, Simulated(WORKERS), blocks(count), growth=1, seed=1)
    measured = slope(squared_distances(method, solution, 600))
    assert method.rate is not None
    assert 1 <= measured / method.rate <= 4


def test_acceleration_pays_where_the_problem_is_ill_conditioned() -> None:
    problem, solution = equal_data()
    plain = Ibcd(problem, Simulated(WORKERS), blocks(1), seed=1)
    accelerated = Iasgd(problem, Simulated(WORKERS), blocks(1), growth=1, seed=1)
    slopes = [slope(squared_distances(method, solution, 600)) for method in (plain, accelerated)]
    assert slopes[1] > 3 * slopes[0]


def test_acceleration_is_safe_without_knowing_the_growth() -> None:
    problem, solution = interpolating()
    method = Iasgd(problem, Simulated(WORKERS), blocks(4), batch=1, seed=1)
    measured = slope(squared_distances(method, solution, 600))
    assert method.rate is not None
    assert measured >= method.rate
