"""Local steps, round by round: against plain code, gradient descent, and what is owed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acceptance import LIBSVM, Check, cases
from data_sets import logistic
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from local_reference import Outer, alike, plain_points

from sparsewire.compress.compressor import Identity
from sparsewire.compress.draws import Draws
from sparsewire.compress.largest import TopK
from sparsewire.compress.registry import parse
from sparsewire.tools.optimize.methods.error_feedback import Ef14
from sparsewire.tools.optimize.methods.gradient_descent import Gd, Qsgd
from sparsewire.tools.optimize.methods.local_steps import DiLoCo, LocalSgd, LocalSteps, SparseLoCo
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.methods.random_pairs import NoLoCo
from sparsewire.tools.optimize.problems.losses import Logistic
from sparsewire.tools.optimize.problems.problem import Floats, Problem

N, L2 = 4, 0.01
DATA = cases([("breast_cancer", 20)], [(name, None) for name in LIBSVM])
WHOLE = Identity(30, np.float64)
TOP_3 = TopK(30, 3, dtype=np.float64)
CODED = "rounded:3+top-k:0.1"


def problem(name: str = "breast_cancer", rows: int | None = 20) -> Logistic:
    return logistic(name, N, L2, rows=rows)


def whole(problem: Problem) -> Identity:
    return Identity(problem.dimension, np.float64)


@pytest.mark.parametrize("case", DATA)
def test_one_local_step_is_gradient_descent_bit_by_bit(case: tuple[str, int | None]) -> None:
    function, same = problem(*case), True
    gamma = 0.73 / function.L
    gd = Gd(function, Simulated(N), gamma=gamma)
    local = LocalSgd(function, Simulated(N), whole(function), gamma=gamma, every=1)
    for _ in range(100):
        gd.step()
        local.step()
        same &= local.x.tobytes() == gd.x.tobytes()
    Check(16, case[0]).holds("one local step is gradient descent: same bits", same)
    assert np.linalg.norm(gd.x) > 0.1
    assert (local.gradients, local.bits) == (gd.gradients, gd.bits)


def test_one_local_step_is_sgd_on_the_same_samples_bit_by_bit() -> None:
    sgd = Qsgd(problem(), Simulated(N), WHOLE, gamma=0.3, batch=3, seed=5)
    local = LocalSgd(problem(), Simulated(N), WHOLE, gamma=0.3, every=1, batch=3, seed=5)
    for _ in range(100):
        sgd.step()
        local.step()
        assert local.x.tobytes() == sgd.x.tobytes()
    assert (local.gradients, local.bits) == (sgd.gradients, sgd.bits)


def test_one_local_step_with_error_feedback_is_ef14() -> None:
    local = LocalSteps(problem(), Simulated(N), TOP_3, every=1)
    ef14 = Ef14(problem(), Simulated(N), TOP_3)
    assert (local.gamma, local.rate) == (ef14.gamma, ef14.rate)
    for _ in range(50):
        ef14.step()
        local.step()
        assert np.allclose(local.x, ef14.x, rtol=0, atol=1e-12)
        assert np.allclose(local.gamma * local.e, ef14.e, rtol=0, atol=1e-12)
    assert np.linalg.norm(ef14.x) > 1e-3


@settings(max_examples=25)
@given(
    options=st.builds(
        Outer,
        every=st.integers(1, 4),
        outer=st.floats(0.1, 1.2),
        momentum=st.sampled_from([0.0, 0.5, 0.9]),
        decay=st.sampled_from([0.0, 0.9, 1.0]),
        delay=st.integers(0, 9),
        mix=st.sampled_from([0.0, 0.3, 0.8]),
        merge=st.sampled_from(["mix", "corrected"]),
    ),
    is_sparse=st.booleans(),
)
def test_rounds_are_those_of_plain_code(options: Outer, is_sparse: bool) -> None:
    assume(options.merge == "mix" or options.delay < options.every)
    function, operator = problem(), TOP_3 if is_sparse else WHOLE
    expected = plain_points(function, lambda x: operator.compress(x, Draws(0)), 0.2, options, 12)
    run = LocalSteps(function, Simulated(N), operator, gamma=0.2, **vars(options))
    for x in expected:
        run.step()
        assert np.allclose(run.x, x, rtol=0, atol=1e-9 * (1 + np.abs(x).max()))


class Booked(LocalSteps):
    """Adds up what the local workers were to send, sent, and owed before each round."""

    def _begin(self) -> None:
        super()._begin()
        self.wanted, self.sent, self.owed = self._zeros(), self._zeros(), self._zeros()

    def _send_of(self, present: Any, vectors: Floats) -> Floats:
        sent = super()._send_of(present, vectors)
        self.wanted, self.sent = self.wanted + self.drift, self.sent + self._own(sent)
        self.owed = self.owed + self.e
        return sent


@pytest.mark.parametrize("case", DATA)
@pytest.mark.parametrize("decay", [1.0, 0.95])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_what_is_sent_is_what_came_less_what_leaked_and_is_owed(
    case: tuple[str, int | None], decay: float, participation: float
) -> None:
    function = problem(*case)
    operator = parse(CODED, function.dimension, np.float64)
    options = {"gamma": 0.1 / max(function.L_i), "decay": decay, "participation": participation}
    run = Booked(function, Simulated(N), operator, seed=2, **options)
    for _ in range(200):
        run.step()
    left = run.wanted - (1 - decay) * run.owed - run.e
    error = np.abs(run.sent - left).max() / np.abs(run.wanted).max()
    what = "sum sent - (sum of drifts - owed)"
    name = what if decay == 1 else f"{what}, less what decay = {decay} leaked"
    Check(16, case[0]).at_most(name, error, 1e-12)
    # What is owed, and what leaked, could be told from nothing.
    assert np.abs(run.e).max() > 1e-3 * np.abs(run.sent).max()


def test_nothing_is_owed_of_what_is_sent_whole() -> None:
    run = LocalSgd(problem(), Simulated(N), WHOLE)
    for _ in range(10):
        run.step()
        assert not run.e.any()
        assert not run.drift.any()


@pytest.mark.parametrize("seed", range(8))
def test_mean_over_contributors_is_longer_by_members_per_contributor(seed: int) -> None:
    """The first round: everybody has the same drift, and nobody owes anything."""
    moves = {}
    for average in ("members", "contributors"):
        options = {"gamma": 0.1, "participation": 0.5, "average": average, "seed": seed}
        operator = Identity(2, np.float64)
        run = LocalSgd(alike(N, 1.0, 2.0), Simulated(N), operator, x0=[1.0, 1.0], **options)
        run.step()
        moves[average] = 1 - run.x
        present = np.count_nonzero((run.e == 0).all(axis=1))
    if present:
        assert moves["contributors"] == pytest.approx(moves["members"] * N / present)
    else:
        assert not np.any([*moves.values()])


def test_who_is_absent_sends_nothing_and_owes_it() -> None:
    run = LocalSgd(problem(), Simulated(N), WHOLE, gamma=0.1, participation=0.3, seed=1)
    run.step()
    absent = run.e.any(axis=1)
    assert 0 < absent.sum() < N
    assert run.bits == (N - absent.sum()) * 30 * 64 / N


def test_steps_of_theory() -> None:
    function = problem()
    largest, batched = 1 / max(function.L_i), 1 / function.L_max
    local = LocalSgd(function, Simulated(N), WHOLE)
    kept = np.mean([(1 - largest * mu) ** 10 for mu in function.mu_i])
    assert local.gamma == largest
    assert local.rate == pytest.approx(1 - kept**2)
    half = LocalSgd(function, Simulated(N), WHOLE, outer=0.5, batch=2)
    kept = np.mean([(1 - batched * mu) ** 10 for mu in function.mu_i])
    assert half.gamma == batched
    assert half.rate == pytest.approx(0.5 * (1 - kept))
    assert (DiLoCo(function, Simulated(N), WHOLE).gamma, local.gamma) == (largest, largest)
    sparse = SparseLoCo(function, Simulated(N), TOP_3)
    assert sparse.gamma == pytest.approx(0.1 / 280 * largest)
    assert DiLoCo(function, Simulated(N), WHOLE).rate is sparse.rate is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": 1}, "no theory is for delay"),
        ({"mix": 0.5}, "no theory is for delay"),
        ({"participation": 0.5}, "no theory is for delay"),
        ({"outer": 1.1}, "outer rate of at most 1"),
        ({"outer": 1.4, "momentum": 0.9}, "outer must be below 1.36"),
        ({"every": 0}, "every must be at least 1"),
        ({"outer": 0.0}, "outer must be positive"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        ({"decay": 1.5}, r"decay must be in \[0, 1\]"),
        ({"delay": -1}, "delay must be 0 or more"),
        ({"mix": 1.0}, r"mix must be in \[0, 1\)"),
        ({"participation": 0.0}, r"participation must be in \(0, 1\]"),
        ({"average": "all"}, "not a valid Average"),
        ({"merge": "corrected", "delay": 10}, "delay must be below every = 10"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalSgd(problem(), Simulated(N), WHOLE, **options)


def test_no_theory_is_for_momentum_on_compressed_sums() -> None:
    with pytest.raises(ValueError, match="momentum and compression"):
        DiLoCo(problem(), Simulated(N), TOP_3)
    with pytest.raises(ValueError, match="workers part"):
        NoLoCo(problem(), Simulated(N), consensus=3.0)
    with pytest.raises(ValueError, match="outer must be below"):
        NoLoCo(problem(), Simulated(N), outer=3.0, consensus=0.7)
    with pytest.raises(ValueError, match="every must be at least 1"):
        NoLoCo(problem(), Simulated(N), every=0)


def test_runs_with_equal_draws_come_together_as_predicted() -> None:
    start = np.full(30, 3.0)
    runs = [LocalSgd(problem(), Simulated(N), WHOLE, batch=2, x0=x, seed=3) for x in (None, start)]
    for _ in range(60):
        for run in runs:
            run.step()
    assert runs[0].rate is not None
    shrunk = np.square(runs[0].x - runs[1].x).sum() / np.square(start).sum()
    assert 0 < shrunk <= (1 - runs[0].rate) ** 60
    # The law has a limit that is no point.
    before = runs[0].x
    runs[0].step()
    assert np.linalg.norm(runs[0].x - before) > 1e-3
