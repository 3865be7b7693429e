"""Methods converge as fast as their theory says, and fail where it says that they must."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance import CONSTRUCTED, LIBSVM, OTHERS, Check, cases
from convergence import rounds_to, slope, squared_distances
from data_sets import examples, logistic

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.dithering import Ternary
from sparsewire.compress.largest import TopK
from sparsewire.compress.seeded import RandK
from sparsewire.tools.optimize.methods.diana import Diana, Isega, VrDianaLsvrg, VrDianaSaga
from sparsewire.tools.optimize.methods.error_feedback import Ef14, Ef21
from sparsewire.tools.optimize.methods.gradient_descent import Dcgd, Gd, Qsgd
from sparsewire.tools.optimize.methods.marina import Marina
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.problems.examples import by_label, from_arrays
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.losses import LeastSquares, NonconvexLogistic
from sparsewire.tools.optimize.problems.reference import solve

QUICK = ("digits", 5, 0.01, 1500)
CASES = cases(
    [QUICK],
    [("mushrooms", 20, 2.5e-4, 60_000), *((name, 20, 1e-3, 15_000) for name in OTHERS)],
)
Case = tuple[str, int, float, int]


def rand_k(problem: LinearModel, share: float = 0.25) -> Compressor:
    return RandK(problem.dimension, round(share * problem.dimension), dtype=np.float64)


def ternary(problem: LinearModel) -> Compressor:
    return Ternary(problem.dimension, np.inf, dtype=np.float64)


COMPRESSORS = {"rand-k:0.25": rand_k, "ternary:inf": ternary}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_diana_is_as_fast_as_predicted(case: Case, compressor: str) -> None:
    name, workers, l2, steps = case
    problem, check = logistic(name, workers, l2), Check(5, name)
    run = Diana(problem, Simulated(workers), COMPRESSORS[compressor](problem), seed=1)
    distances = squared_distances(run, solve(problem), steps)
    check.curve(f"DIANA, {compressor}", distances, 10)
    check.at_most(f"DIANA, {compressor}: rounds to 1e-20", rounds_to(1e-20, distances), 60_000)
    check.between(f"DIANA, {compressor}: slope / rate", slope(distances) / run.rate, 1, 3)


def test_momentum_finds_the_solution_too() -> None:
    name, workers, l2, steps = QUICK
    problem = logistic(name, workers, l2)
    gamma = Diana(problem, Simulated(workers), rand_k(problem)).gamma / 2
    run = Diana(problem, Simulated(workers), rand_k(problem), gamma=gamma, beta=0.5, seed=1)
    assert squared_distances(run, solve(problem), steps)[-1] <= 1e-20


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_without_shifts_it_stalls(case: Case, compressor: str) -> None:
    name, workers, l2, steps = case
    problem, check, operator = logistic(name, workers, l2), Check(6, name), COMPRESSORS[compressor]
    gamma = Diana(problem, Simulated(workers), operator(problem)).gamma
    run = Dcgd(problem, Simulated(workers), operator(problem), gamma=gamma, seed=1)
    distances = squared_distances(run, solve(problem), steps // 3)
    check.curve(f"DCGD, {compressor}", distances, 10)
    floor = distances[len(distances) // 2 :].min()
    check.at_least(f"DCGD, {compressor}: least squared distance", floor, 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_shifts_that_move_too_far_diverge(case: Case) -> None:
    name, workers, l2, _ = case
    problem, check = logistic(name, workers, l2), Check(7, name)
    compressor = rand_k(problem)
    alpha = 4 / (compressor.omega + 1)
    run = Diana(problem, Simulated(workers), compressor, alpha=alpha, seed=1)
    assert run.rate is None
    distances = squared_distances(run, solve(problem), 200)
    check.at_least("growth in 200 rounds", distances[-1] / distances[0], 1e6)


REDUCED = cases(
    [("digits", 10, 0.05, 1150)],
    [("mushrooms", 20, 1e-3, 45_000), *((name, 20, 3e-3, 30_000) for name in OTHERS)],
)


def reduced(name: str, workers: int, l2: float) -> LinearModel:
    """So few rows that the theory's rate is a matter of the step size, not of their number.

    Only there slopes are 1 to 3 times the rate.
    """
    return logistic(name, workers, l2, rows=18 if name == "digits" else 100)


@pytest.mark.parametrize("case", REDUCED)
def test_both_variance_reductions_are_as_fast_as_predicted(case: Case) -> None:
    name, workers, l2, steps = case
    problem, check = reduced(name, workers, l2), Check(8, name)
    solution, slopes = solve(problem), []
    for variant, method in {"L-SVRG": VrDianaLsvrg, "SAGA": VrDianaSaga}.items():
        run = method(problem, Simulated(workers), rand_k(problem, 0.5), seed=2)
        distances = squared_distances(run, solution, steps)
        check.curve(f"VR-DIANA, {variant}", distances, 10)
        check.between(f"VR-DIANA, {variant}: slope / rate", slope(distances) / run.rate, 1, 3)
        check.at_most(f"VR-DIANA, {variant}: rounds to 1e-20", rounds_to(1e-20, distances), 60_000)
        slopes.append(slope(distances))
    check.between("slope of SAGA / L-SVRG", slopes[1] / slopes[0], 1 / 1.1, 1.1)


@pytest.mark.parametrize(("workers", "rows", "l2"), [(10, 18, 1.0), (4, 60, 2.0)])
def test_references_are_as_fast_as_predicted_where_they_limit_the_rate(
    workers: int, rows: int, l2: float
) -> None:
    """Of m references 1/m is renewed per step, 8/3 of the rate, and runs fall faster than means."""
    problem = logistic("digits", workers, l2, rows=rows)
    solution, rate = solve(problem), 3 / (8 * rows)
    for method in (VrDianaSaga, VrDianaLsvrg):
        run = method(problem, Simulated(workers), rand_k(problem, 0.5), seed=2)
        assert run.rate == pytest.approx(rate)
        ratio = slope(squared_distances(run, solution, 3000)) / rate
        # L-SVRG renews all at once, and between two coins its steps may still shrink the distance.
        assert (
            8 / 3 <= ratio <= (5 if method is VrDianaSaga else 2.2 * run.gamma * problem.mu / rate)
        )


@pytest.mark.parametrize("case", REDUCED)
def test_stochastic_gradients_alone_stall(case: Case) -> None:
    name, workers, l2, steps = case
    problem, check = reduced(name, workers, l2), Check(8, name)
    gamma = VrDianaSaga(problem, Simulated(workers), rand_k(problem, 0.5)).gamma
    run = Qsgd(problem, Simulated(workers), rand_k(problem, 0.5), gamma=gamma, seed=2)
    distances = squared_distances(run, solve(problem), steps // 3)
    check.curve("QSGD", distances, 10)
    floor = distances[len(distances) // 2 :].min()
    check.at_least("QSGD: least squared distance", floor, 1e-4)


def mean_squared_gradients(run: Method, steps: int) -> np.ndarray:
    """The means of |grad f(x^k)|^2 over the first 1, 2, ... steps."""
    squares = []
    for _ in range(steps):
        squares.append(np.square(run.problem.full_gradient(run.x)).sum())
        run.step()
    return np.cumsum(squares) / np.arange(1, steps + 1)


NONCONVEX = cases([("digits", 5, 1500)], [(name, 20, 2500) for name in LIBSVM])


@pytest.mark.parametrize("case", NONCONVEX)
@pytest.mark.parametrize("method", [Diana, Ef21, Marina])
def test_nonconvex_bounds_hold(case: tuple[str, int, int], method: type) -> None:
    name, workers, steps = case
    data, check = examples(name), Check(12, name)
    parts = by_label(data.labels, workers, equal=True)
    problem = NonconvexLogistic(data, parts, weight=0.01)
    compressor = rand_k(problem) if method is not Ef21 else top_k(problem)
    # Where all rows seem to be of one class, so that there is something to do.
    start = np.full(problem.dimension, 4 / np.sqrt(problem.dimension))
    run = method(problem, Simulated(workers), compressor, x0=start, seed=3)
    # The loss is never negative.
    decrease = problem.loss(run.x)
    first = np.square(problem.gradients(range(workers), run.x)).sum(axis=1).mean()
    means = mean_squared_gradients(run, steps)
    bounds = np.array([bound_of(run, decrease, first, k) for k in range(1, steps + 1)])
    label = f"{method.__name__}: mean squared gradient / bound"
    check.at_most(label, (means / bounds).max(), 1)
    # It says something: so small a mean takes progress.
    assert bounds[-1] < means[0] / 2


def top_k(problem: LinearModel) -> Compressor:
    return TopK(problem.dimension, problem.dimension // 4, dtype=np.float64)


def bound_of(run: Method, decrease: float, first: float, steps: int) -> float:
    """What `theory` of each says of the mean of E|grad f(x^k)|^2."""
    if isinstance(run, Diana):
        return 4 * decrease / (run.gamma * steps)
    if isinstance(run, Marina):
        return 2 * decrease / (run.gamma * steps)
    error, theta = (1 - run.contraction) * first, 1 - np.sqrt(1 - run.contraction)
    return (2 * decrease / run.gamma + error / theta) / steps


def counterexample() -> LeastSquares:
    """f_i(x) = <a_i, x>^2 + |x|^2 / 4 with a = (-3, 2, 2) and its shifts; the solution is 0.

    A. Beznosikov et al., "On biased compression for distributed learning" (JMLR 2023).
    """
    rows = np.sqrt(2) * np.array([[-3.0, 2, 2], [2, -3, 2], [2, 2, -3]])
    return LeastSquares(from_arrays(rows, np.zeros(3)), np.arange(3)[:, np.newaxis], l2=0.5)


TOP_1 = TopK(3, 1, dtype=np.float64)


def test_top_1_alone_diverges_exactly_as_computed() -> None:
    run, gamma = Dcgd(counterexample(), Simulated(3), TOP_1, gamma=0.1, x0=np.ones(3)), 0.1
    errors = []
    for step in range(1, 51):
        run.step()
        errors.append(np.abs(run.x / (1 + 11 * gamma / 6) ** step - 1).max())
    Check(13, CONSTRUCTED).at_most("DCGD: error of the growth computed", max(errors), 1e-12)


@pytest.mark.parametrize("method", [Ef14, Ef21])
def test_error_feedback_mends_top_1(method: type[Ef14] | type[Ef21]) -> None:
    # Theory asks for a shorter step, and so for more of them.
    run = method(counterexample(), Simulated(3), TOP_1, gamma=0.02, x0=np.ones(3))
    for _ in range(2000):
        run.step()
    distance = np.linalg.norm(run.x)
    Check(13, CONSTRUCTED).at_most(f"{method.__name__}: distance", distance, 1e-12)


@pytest.mark.parametrize("method", [Ef14, Ef21])
@pytest.mark.parametrize("compressor", [TOP_1, RandK(3, 1, dtype=np.float64)])
def test_error_feedback_keeps_its_predicted_rate(
    method: type[Ef14] | type[Ef21], compressor: Compressor
) -> None:
    run = method(counterexample(), Simulated(3), compressor, x0=np.ones(3), seed=4)
    distances = squared_distances(run, np.zeros(3), 1000, 50)
    assert slope(distances, 50) >= run.rate


SPARSE = cases([("digits", 5, 0.01, 2e-3)], [(name, 20, 5e-3, 1e-3) for name in LIBSVM])


@pytest.mark.parametrize("case", SPARSE)
@pytest.mark.parametrize("method", [Gd, Diana, Isega])
def test_proximal_methods_find_the_sparse_solution(
    case: tuple[str, int, float, float], method: type
) -> None:
    name, workers, l2, l1 = case
    problem, check = logistic(name, workers, l2, l1=l1), Check(14, name)
    compressors = [rand_k(problem)] if method is Diana else []
    run, solution = method(problem, Simulated(workers), *compressors, seed=1), solve(problem)
    distance = np.inf
    while distance > 1e-12 and run.rounds < 200_000:
        for _ in range(100):
            run.step()
        distance = np.linalg.norm(run.x - solution)
    label = method.__name__
    check.at_most(f"{label}: distance", distance, 1e-12)
    check.holds(f"{label}: same support", np.array_equal(run.x != 0, solution != 0))
    assert 0 < np.count_nonzero(solution) < problem.dimension
