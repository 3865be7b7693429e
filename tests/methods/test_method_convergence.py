"""Methods converge as fast as their theory says, and fail where it says that they must."""

from __future__ import annotations

import numpy as np
import pytest
from convergence import slope, squared_distances
from data_sets import FULL_TIMEOUT, examples, full_check, logistic

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.rand_k import RandK
from sparsewire.compress.ternary import Ternary
from sparsewire.compress.top_k import TopK
from sparsewire.methods import diana, ef21, marina
from sparsewire.methods.dcgd import Dcgd
from sparsewire.methods.diana import Diana
from sparsewire.methods.ef14 import Ef14
from sparsewire.methods.ef21 import Ef21
from sparsewire.methods.gd import Gd
from sparsewire.methods.marina import Marina
from sparsewire.methods.method import Method
from sparsewire.methods.network import Simulated
from sparsewire.methods.qsgd import Qsgd
from sparsewire.methods.vr_diana import VrDianaLsvrg, VrDianaSaga
from sparsewire.problems.least_squares import LeastSquares
from sparsewire.problems.linear_model import LinearModel
from sparsewire.problems.nonconvex import NonconvexLogistic
from sparsewire.problems.partition import by_label
from sparsewire.problems.reference import solve
from sparsewire.problems.sources import from_arrays

QUICK = ("digits", 5, 0.01, 1500)
FULL = pytest.param(
    ("mushrooms", 20, 2.5e-4, 60_000), marks=[full_check("mushrooms"), FULL_TIMEOUT], id="mushrooms"
)
CASES = [pytest.param(QUICK, id="digits"), FULL]
Case = tuple[str, int, float, int]


def rand_k(problem: LinearModel, share: float = 0.25) -> Compressor:
    return RandK(problem.dimension, round(share * problem.dimension), dtype=np.float64)


def ternary(problem: LinearModel) -> Compressor:
    return Ternary(problem.dimension, np.inf, dtype=np.float64)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compressor", [rand_k, ternary])
def test_diana_is_as_fast_as_predicted(case: Case, compressor: type) -> None:
    name, workers, l2, steps = case
    problem = logistic(name, workers, l2)
    run = Diana(problem, Simulated(workers), compressor(problem), seed=1)
    distances = squared_distances(run, solve(problem), steps)
    print(f"slope / rate {slope(distances) / run.rate:.2f}, error {distances[-1]:.2g}")
    assert 1 <= slope(distances) / run.rate <= 3
    assert distances[-1] <= 1e-20


def test_momentum_finds_the_solution_too() -> None:
    name, workers, l2, steps = QUICK
    problem = logistic(name, workers, l2)
    gamma = diana.theory(problem, rand_k(problem).omega).gamma / 2
    run = Diana(problem, Simulated(workers), rand_k(problem), gamma=gamma, beta=0.5, seed=1)
    assert squared_distances(run, solve(problem), steps)[-1] <= 1e-20


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compressor", [rand_k, ternary])
def test_without_shifts_it_stalls(case: Case, compressor: type) -> None:
    name, workers, l2, steps = case
    problem = logistic(name, workers, l2)
    gamma = diana.theory(problem, compressor(problem).omega).gamma
    run = Dcgd(problem, Simulated(workers), compressor(problem), gamma=gamma, seed=1)
    distances = squared_distances(run, solve(problem), steps // 2)
    print(f"floor {distances[len(distances) // 2 :].min():.2g}")
    assert distances[len(distances) // 2 :].min() >= 1e-5


@pytest.mark.parametrize("case", CASES)
def test_shifts_that_move_too_far_diverge(case: Case) -> None:
    name, workers, l2, _ = case
    problem = logistic(name, workers, l2)
    compressor = rand_k(problem)
    alpha = 4 / (compressor.omega + 1)
    run = Diana(problem, Simulated(workers), compressor, alpha=alpha, seed=1)
    assert run.rate is None
    distances = squared_distances(run, solve(problem), 200)
    assert distances[-1] > 1e6 * distances[0]


REDUCED = [
    pytest.param(("digits", 10, 0.05, 1150), 18, id="digits"),
    pytest.param(
        ("mushrooms", 20, 1e-3, 100_000),
        100,
        marks=[full_check("mushrooms"), FULL_TIMEOUT],
        id="mushrooms",
    ),
]


@pytest.mark.parametrize(("case", "rows"), REDUCED)
def test_both_variance_reductions_are_as_fast_as_predicted(case: Case, rows: int) -> None:
    name, workers, l2, steps = case
    problem = logistic(name, workers, l2, rows=rows)
    solution, slopes = solve(problem), []
    for method in (VrDianaLsvrg, VrDianaSaga):
        run = method(problem, Simulated(workers), rand_k(problem, 0.5), seed=2)
        distances = squared_distances(run, solution, steps)
        print(f"slope / rate {slope(distances) / run.rate:.2f}, error {distances[-1]:.2g}")
        assert 1 <= slope(distances) / run.rate <= 3
        assert distances[-1] <= 1e-20
        slopes.append(slope(distances))
    assert max(slopes) <= 1.1 * min(slopes)


@pytest.mark.parametrize(("case", "rows"), REDUCED)
def test_stochastic_gradients_alone_stall(case: Case, rows: int) -> None:
    name, workers, l2, steps = case
    problem = logistic(name, workers, l2, rows=rows)
    gamma = VrDianaSaga(problem, Simulated(workers), rand_k(problem, 0.5)).gamma
    run = Qsgd(problem, Simulated(workers), rand_k(problem, 0.5), gamma=gamma, seed=2)
    distances = squared_distances(run, solve(problem), steps // 2)
    print(f"floor {distances[len(distances) // 2 :].min():.2g}")
    assert distances[len(distances) // 2 :].min() >= 1e-4


def mean_squared_gradients(run: Method, steps: int) -> np.ndarray:
    """The means of |grad f(x^k)|^2 over the first 1, 2, ... steps."""
    squares = []
    for _ in range(steps):
        squares.append(np.square(run.problem.full_gradient(run.x)).sum())
        run.step()
    return np.cumsum(squares) / np.arange(1, steps + 1)


NONCONVEX = [
    pytest.param("digits", 5, 1500, id="digits"),
    pytest.param(
        "mushrooms", 20, 20_000, marks=[full_check("mushrooms"), FULL_TIMEOUT], id="mushrooms"
    ),
]


@pytest.mark.parametrize(("name", "workers", "steps"), NONCONVEX)
@pytest.mark.parametrize("method", [Diana, Ef21, Marina])
def test_nonconvex_bounds_hold(name: str, workers: int, steps: int, method: type) -> None:
    data = examples(name)
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
    print(f"mean squared gradient {means[-1]:.2g}, bound {bounds[-1]:.2g}, start {means[0]:.2g}")
    assert (means <= bounds).all()
    # It says something: so small a mean takes progress.
    assert bounds[-1] < means[0] / 2


def top_k(problem: LinearModel) -> Compressor:
    return TopK(problem.dimension, problem.dimension // 4, dtype=np.float64)


def bound_of(run: Method, decrease: float, first: float, steps: int) -> float:
    if isinstance(run, Diana):
        return diana.nonconvex_bound(run.gamma, decrease, steps)
    if isinstance(run, Marina):
        return marina.nonconvex_bound(run.gamma, decrease, steps)
    error = (1 - run.contraction) * first
    return ef21.nonconvex_bound(run.gamma, run.contraction, decrease, error, steps)


def counterexample() -> LeastSquares:
    """f_i(x) = <a_i, x>^2 + |x|^2 / 4 with a = (-3, 2, 2) and its shifts; the solution is 0.

    A. Beznosikov et al., "On biased compression for distributed learning" (JMLR 2023).
    """
    rows = np.sqrt(2) * np.array([[-3.0, 2, 2], [2, -3, 2], [2, 2, -3]])
    return LeastSquares(from_arrays(rows, np.zeros(3)), np.arange(3)[:, np.newaxis], l2=0.5)


TOP_1 = TopK(3, 1, dtype=np.float64)


def test_top_1_alone_diverges_exactly_as_computed() -> None:
    run, gamma = Dcgd(counterexample(), Simulated(3), TOP_1, gamma=0.1, x0=np.ones(3)), 0.1
    for step in range(1, 51):
        run.step()
        assert run.x == pytest.approx(np.full(3, (1 + 11 * gamma / 6) ** step), rel=1e-12)


@pytest.mark.parametrize("method", [Ef14, Ef21])
def test_error_feedback_mends_top_1(method: type[Ef14] | type[Ef21]) -> None:
    # Theory asks for a shorter step, and so for more of them.
    run = method(counterexample(), Simulated(3), TOP_1, gamma=0.02, x0=np.ones(3))
    for _ in range(2000):
        run.step()
    assert np.linalg.norm(run.x) <= 1e-12


@pytest.mark.parametrize("method", [Ef14, Ef21])
@pytest.mark.parametrize("compressor", [TOP_1, RandK(3, 1, dtype=np.float64)])
def test_error_feedback_keeps_its_predicted_rate(
    method: type[Ef14] | type[Ef21], compressor: Compressor
) -> None:
    run = method(counterexample(), Simulated(3), compressor, x0=np.ones(3), seed=4)
    distances = squared_distances(run, np.zeros(3), 1000, 50)
    assert slope(distances, 50) >= run.rate


L1 = [
    pytest.param(("digits", 5, 0.01, 1500), 2e-3, id="digits"),
    pytest.param(
        ("mushrooms", 20, 2.5e-4, 60_000),
        1e-3,
        marks=[full_check("mushrooms"), FULL_TIMEOUT],
        id="mushrooms",
    ),
]


@pytest.mark.parametrize(("case", "l1"), L1)
@pytest.mark.parametrize("method", [Gd, Diana])
def test_proximal_methods_find_the_sparse_solution(case: Case, l1: float, method: type) -> None:
    name, workers, l2, steps = case
    problem = logistic(name, workers, l2, l1=l1)
    compressors = [] if method is Gd else [rand_k(problem)]
    run, solution = method(problem, Simulated(workers), *compressors), solve(problem)
    for _ in range(steps):
        run.step()
    print(f"distance {np.linalg.norm(run.x - solution):.2g}")
    assert np.linalg.norm(run.x - solution) <= 1e-12
    assert (run.x == 0).tolist() == (solution == 0).tolist()
    assert 0 < np.count_nonzero(solution) < problem.dimension
