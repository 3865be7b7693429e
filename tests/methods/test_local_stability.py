"""Delay, mixing, momentum and pairs are stable up to where recurrences say, and not beyond."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from acceptance import CONSTRUCTED, Check
from data_sets import logistic
from local_reference import Outer, alike, delayed_matrix, limit_of, round_matrix

from sparsewire.compress.compressor import Identity
from sparsewire.tools.optimize.methods.local_steps import LocalSteps
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.methods.random_pairs import NoLoCo, spectral_radius, spread_matrix
from sparsewire.tools.optimize.problems.problem import Floats

CHECK = Check(16, CONSTRUCTED)
GAMMA, ROUNDS = 0.2, 2500
"""On x^2 / 2, a local step leaves 1 - GAMMA of x."""
NEAR = 0.02
"""How far from the limit both sides are run, as a share of it."""


def distance_after(options: Outer, rounds: int = ROUNDS) -> float:
    """|x| from 1 on, of two workers with x^2 / 2 each."""
    run = LocalSteps(
        alike(2, 1.0), Simulated(2), Identity(1, np.float64), gamma=GAMMA, x0=[1.0], **vars(options)
    )
    while run.rounds < rounds and 1e-9 < abs(run.x[0]) < 1e9:
        run.step()
    return abs(float(run.x[0]))


def assert_stable_up_to(limit: float, what: str, **options: Any) -> None:
    """Converges a little below the limit of `outer`, and diverges a little above it."""
    below, above = (Outer(outer=limit * (1 + s), **options) for s in (-NEAR, NEAR))
    CHECK.at_most(f"{what}, 2% below the limit of theory: distance", distance_after(below), 1e-3)
    CHECK.at_least(f"{what}, 2% above: distance", distance_after(above), 1e3)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_delays_of_rounds_are_stable_as_far_as_delayed_descent_is(rounds: int) -> None:
    every, pull = 4, 1 - (1 - GAMMA) ** 4
    limit = 2 * np.sin(np.pi / (2 * (2 * rounds + 1))) / pull
    # Known in closed form; the matrix has to say the same.
    found = limit_of(lambda outer: delayed_matrix(outer * pull, rounds), 0.01, 10.0)
    assert found == pytest.approx(limit, rel=1e-9)
    assert_stable_up_to(limit, "delay of whole rounds", every=every, delay=rounds * every)


MERGES = [
    {},
    {"momentum": 0.9},
    {"mix": 0.5},
    {"mix": 0.5, "delay": 2},
    {"mix": 0.8, "delay": 3},
    {"mix": 0.5, "delay": 1, "momentum": 0.5},
    {"merge": "corrected", "delay": 1},
    {"merge": "corrected", "delay": 3, "momentum": 0.5},
]


@pytest.mark.parametrize("options", MERGES)
def test_merges_are_stable_as_far_as_their_matrix_is(options: dict[str, Any]) -> None:
    def matrix(outer: float) -> Floats:
        return round_matrix(1 - GAMMA, Outer(every=4, outer=outer, **options))

    limit = limit_of(matrix, 0.01, 50.0)
    if "delay" not in options and "mix" not in options:
        pull, momentum = 1 - (1 - GAMMA) ** 4, options.get("momentum", 0)
        assert limit == pytest.approx(2 * (1 + momentum) / (1 + 2 * momentum) / pull)
    assert_stable_up_to(limit, "delay within rounds, merges, momentum", every=4, **options)


def test_corrected_merge_loses_no_steps() -> None:
    late = {"every": 5, "delay": 3}
    ends = [distance_after(Outer(**late, merge=merge), 10) for merge in ("mix", "corrected")]
    # Of workers that agree: as if the sum had not travelled, but for the last round.
    assert ends[1] == pytest.approx(distance_after(Outer(every=5), 9))
    assert ends[1] < ends[0] / 10


def test_short_delays_cost_steps_and_no_stability_if_nothing_is_mixed() -> None:
    late, short = Outer(every=5, delay=2), Outer(every=3)
    # The two steps on the way are thrown away: three are left of each round but the first.
    assert distance_after(late, 20) == pytest.approx(distance_after(short, 18) * (1 - GAMMA) ** 5)


def test_mean_over_contributors_diverges_where_that_over_members_converges() -> None:
    """Of 16 workers a quarter takes part, and sends what it owes of about four rounds."""
    ends, outer = {}, 3 / (1 - (1 - GAMMA) ** 4)
    for average in ("members", "contributors"):
        options = {"participation": 0.25, "average": average, "outer": outer, "every": 4}
        operator = Identity(1, np.float64)
        run = LocalSteps(
            alike(16, 1.0), Simulated(16), operator, gamma=GAMMA, x0=[1.0], seed=1, **options
        )
        while run.rounds < 300 and abs(run.x[0]) < 1e9:
            run.step()
        ends[average] = abs(float(run.x[0]))
    CHECK.at_most("4 of 16 take part, mean over members: distance", ends["members"], 1e-5)
    CHECK.at_least("4 of 16 take part, mean over contributors: distance", ends["contributors"], 1e3)


@pytest.mark.parametrize("workers", [2, 4, 5])
def test_spread_of_pairs_follows_its_matrix(workers: int) -> None:
    """One round without drifts, over all pairs that there may be."""
    momentum, consensus = 0.5, 0.7
    random = np.random.default_rng(workers)
    phi, m = random.normal(size=(2, workers))
    phi, m = phi - phi.mean(), m - m.mean()
    found = np.zeros(3)
    orders = list(permutations(range(workers)))
    for order in orders:
        mean = phi.copy()
        for i, j in zip(order[: workers // 2 * 2 : 2], order[1::2], strict=True):
            mean[i] = mean[j] = (phi[i] + phi[j]) / 2
        moved = momentum * m + consensus * (mean - phi)
        after = phi + moved
        found += [np.mean(each) for each in (after**2, after * moved, moved**2)]
    before = [np.mean(each) for each in (phi**2, phi * m, m**2)]
    assert spread_matrix(workers, momentum, consensus) @ before == pytest.approx(
        found / len(orders)
    )


def spreads(consensus: float, rounds: int) -> Floats:
    """mean_i |phi_i - x|^2 after each round on workers that disagree."""
    problem = logistic("breast_cancer", 6, 0.01, rows=20)
    run = NoLoCo(
        problem, Simulated(6), gamma=0.3 / max(problem.L_i), consensus=consensus, every=5, seed=4
    )
    found = []
    while run.rounds < rounds and (not found or found[-1] < 1e12):
        run.step()
        found.append(run.spread)
    return np.array(found)


def test_pairs_keep_the_spread_between_workers_bounded() -> None:
    first, second = np.split(spreads(0.7, 400), 2)
    CHECK.at_most("NoLoCo: spread, second half / first", second.max() / first.max(), 1)
    _, alone = np.split(spreads(0.0, 400), 2)
    CHECK.at_least("NoLoCo without consensus: spread / with", alone.mean() / second.mean(), 3)
    limit = limit_of(lambda consensus: spread_matrix(6, 0.5, consensus), 0.1, 10.0)
    assert limit > 0.7
    CHECK.at_least("NoLoCo, consensus twice its limit: spread", spreads(2 * limit, 400)[-1], 1e9)


def test_spectral_radius_is_that_of_a_turn() -> None:
    assert spectral_radius(2 * np.array([[0.0, -1.0], [1.0, 0.0]])) == pytest.approx(2)
