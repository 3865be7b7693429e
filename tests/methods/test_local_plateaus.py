"""Where methods with local steps stand still: as theory says, and further off without feedback."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from acceptance import CONSTRUCTED, LIBSVM, Check, cases
from convergence import squared_distances
from data_sets import logistic

from sparsewire.compress.compressor import Compressor, Identity
from sparsewire.compress.largest import TopK
from sparsewire.compress.registry import parse
from sparsewire.tools.optimize.methods.local_steps import DiLoCo, LocalSgd, LocalSteps, SparseLoCo
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.methods.random_pairs import NoLoCo
from sparsewire.tools.optimize.problems.examples import from_arrays
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.losses import LeastSquares
from sparsewire.tools.optimize.problems.problem import Floats
from sparsewire.tools.optimize.problems.reference import solve

CASES = cases(
    [("digits", 5, 0.01, 18, 200)],
    [("mushrooms", 20, 1e-3, 100, 600), *((name, 20, 3e-3, 100, 600) for name in LIBSVM[1:])],
)
Case = tuple[str, int, float, int, int]
SHORT = 0.1
"""Steps of all methods, as a share of 1 / L_i, so that there is something to see after a floor."""


def parts_of(case: Case) -> tuple[LinearModel, Floats, float]:
    """Problem, solution and step size."""
    name, workers, l2, rows, _ = case
    problem = logistic(name, workers, l2, rows=rows)
    return problem, solve(problem), SHORT / max(problem.L_i)


def whole(problem: LinearModel) -> Compressor:
    return Identity(problem.dimension, np.float64)


@pytest.mark.parametrize("case", CASES)
def test_local_sgd_comes_to_its_own_point_as_fast_as_predicted(case: Case) -> None:
    problem, solution, _ = parts_of(case)
    run, check = LocalSgd(problem, Simulated(problem.workers), whole(problem)), Check(16, case[0])
    assert run.rate is not None
    moves: list[float] = []
    while run.rounds < case[-1] and (not moves or moves[-1] > 1e-10):
        before = run.x
        run.step()
        moves.append(float(np.linalg.norm(run.x - before)))
    shrunk = [-2 * np.log(b / a) for a, b in pairwise(moves)]
    check.at_least("local SGD: slope of its moves / rate", min(shrunk) / -np.log1p(-run.rate), 1)
    remaining = np.sqrt(1 - run.rate)
    there = LocalSgd(problem, Simulated(problem.workers), whole(problem), x0=solution)
    there.step()
    bound = np.linalg.norm(there.x - solution) / (1 - remaining)
    left = moves[-1] / (1 - remaining)
    floor = np.linalg.norm(run.x - solution)
    check.at_most("local SGD: distance of its point / bound", (floor + left) / bound, 1)
    check.at_least("local SGD: squared distance of its point", (floor - left) ** 2, 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_without_error_feedback_compression_stalls_further_off(case: Case) -> None:
    problem, solution, gamma = parts_of(case)
    check, ends = Check(16, case[0]), {}
    for label, run in drawn(problem, gamma).items():
        distances = squared_distances(run, solution, case[-1], 5)
        check.curve(label, distances, 5)
        ends[label] = float(np.mean(distances[-len(distances) // 4 :]))
    fed = ends["SparseLoCo, decay 1"]
    ratio = ends["SparseLoCo without feedback"] / fed
    check.at_least("SparseLoCo without error feedback: squared distance / with", ratio, 2)


def drawn(problem: LinearModel, gamma: float) -> dict[str, Method]:
    """What is plotted, all with the same steps."""
    network, exact = Simulated(problem.workers), whole(problem)
    coded = parse("rounded:3+top-k:0.1", problem.dimension, np.float64)
    return {
        "GD": LocalSgd(problem, network, exact, gamma=gamma, every=1),
        "local SGD": LocalSgd(problem, network, exact, gamma=gamma),
        "DiLoCo": DiLoCo(problem, network, exact, gamma=gamma),
        "NoLoCo": NoLoCo(problem, network, gamma=gamma),
        "SparseLoCo, decay 1": SparseLoCo(problem, network, coded, gamma=gamma, decay=1.0),
        "SparseLoCo, decay 0.95": SparseLoCo(problem, network, coded, gamma=gamma),
        "SparseLoCo without feedback": SparseLoCo(problem, network, coded, gamma=gamma, decay=0.0),
    }


def opposed(spread: float) -> LeastSquares:
    """f_i(x) = ((x_0 -+ spread)^2 + x_1^2) / 2 for two workers; the solution is 0.

    They disagree in the first coordinate, where their drifts cancel and never vanish, and agree in
    the second.
    """
    rows = np.sqrt(2) * np.tile(np.eye(2), (2, 1))
    labels = np.sqrt(2) * np.array([spread, 0, -spread, 0])
    return LeastSquares(from_arrays(rows, labels), [np.arange(2), np.arange(2, 4)])


GAMMA, EVERY, SPREAD = 4e-4, 5, 1.0
PULL = 1 - (1 - GAMMA) ** EVERY
"""A round's local steps take this share of the way to a worker's own solution."""


def plateau(decay: float, start: float, rounds: int) -> float:
    """|x_1| where top-1 with error feedback stands still."""
    run = LocalSteps(
        opposed(SPREAD),
        Simulated(2),
        TopK(2, 1, dtype=np.float64),
        gamma=GAMMA,
        every=EVERY,
        decay=decay,
        x0=[0.0, start],
    )
    for _ in range(rounds):
        run.step()
    assert run.x[0] == 0
    return abs(float(run.x[1]))


@pytest.mark.parametrize("decay", [0.0, 0.8, 0.9, 0.95])
def test_decay_stalls_where_theory_says(decay: float) -> None:
    """Top-1 sends the first coordinate, +-PULL SPREAD, unless more is owed in the second.

    Owed there is at most the geometric sum PULL x_1 / (1 - decay). So x_1 moves as long as it is
    above (1 - decay) SPREAD, and each move is about PULL SPREAD long, all that was owed.
    """
    expected = (1 - decay) * SPREAD
    found = plateau(decay, 1.3 * expected, 3000)
    move = PULL * (SPREAD + 1.3 * expected)
    assert expected - move <= found <= expected
    ratio = found / expected
    Check(16, CONSTRUCTED).between("plateau / ((1 - decay) disagreement)", ratio, 0.95, 1)


def test_without_decay_there_is_no_such_plateau() -> None:
    found = plateau(1.0, 0.05, 3000)
    Check(16, CONSTRUCTED).at_most("decay 1: plateau / disagreement", found / SPREAD, 2 * PULL)


def test_without_feedback_nothing_of_it_is_ever_sent() -> None:
    assert plateau(0.0, 0.9, 500) == 0.9
