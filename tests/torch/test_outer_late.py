"""Replicas that are late: rounds go on without them, and what they did is kept, within a bound.

Every inner step moves the parameters by a known amount, so all deltas can be accounted for exactly.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from outer_threads import flat, shared, together
from torch import Tensor, nn

from sparsewire.torch.outer import OuterOptimizer

pytestmark = pytest.mark.timeout(60)

SGD = torch.optim.SGD
ELEMENTS = 64
BEGIN = 512.0
WAIT_S = 20.0


class Walker:
    """A replica whose inner step takes (rank + 1) from each parameter; sums of these are exact."""

    def __init__(self, rank: int, membership: Any, **settings: Any) -> None:
        self.rank = rank
        self.model = nn.ParameterList([torch.full((ELEMENTS,), BEGIN), torch.full((3,), BEGIN)])
        self.inner = SGD(self.model.parameters(), 1.0)
        settings = {"every": 1, "timeout": WAIT_S, "deadline": 0.1, **settings}
        outer = partial(SGD, lr=1.0)
        self.outer = OuterOptimizer(
            self.model, self.inner, outer, membership=membership, **settings
        )

    def step(self) -> None:
        for parameter in self.model:
            parameter.grad = torch.full_like(parameter, self.rank + 1.0)
        self.inner.step()

    def theta(self) -> Tensor:
        """The shared point."""
        saved = self.outer.state_dict()["shared"]
        return torch.cat([saved["0/theta"], saved["1/theta"]])

    def steps_until(self, rounds: int) -> None:
        """Step until so many rounds have been committed."""
        while self.outer.rounds < rounds:
            self.step()


class Signals:
    """What replicas wait for, and where they stand at the end."""

    def __init__(self, count: int) -> None:
        self.go = threading.Event()
        self.together = threading.Barrier(count, timeout=WAIT_S)
        self._rounds = [0] * count

    def settle(self, walker: Walker) -> None:
        """Wait until all have no round before them, and have committed what one has committed."""
        self._rounds[walker.rank] = walker.outer.rounds
        self.together.wait()
        await_rounds(walker, max(self._rounds))
        self.together.wait()


def await_rounds(walker: Walker, rounds: int) -> None:
    """Wait until the thread of rounds has seen so many, without a step."""
    ends = time.monotonic() + WAIT_S
    while walker.outer.rounds < rounds:
        assert time.monotonic() < ends
        time.sleep(0.005)


class Paused(NamedTuple):
    """The shared point after the pause and at the end; parameters after the step that came late."""

    middle: Tensor
    after: Tensor
    theta: Tensor
    stats: dict[str, Any]


def pausing(rank: int, membership: Any, signals: Signals, pause: int, **settings: Any) -> Any:
    """One round of both; `pause` rounds without replica 1, though it has taken steps; then both."""
    walker = Walker(rank, membership, **settings)
    with walker.outer as outer:
        walker.step()
        if rank == 0:
            walker.steps_until(1 + pause)
            signals.go.set()
        else:
            assert signals.go.wait(WAIT_S)
            await_rounds(walker, 1 + pause)
        middle = walker.theta()
        signals.together.wait()
        walker.step()
        after = flat(walker.model)
        signals.settle(walker)
        return Paused(middle, after, walker.theta(), outer.stats())


@pytest.mark.parametrize("average", ["members", "contributors"])
def test_a_round_goes_on_without_who_is_late(average: str) -> None:
    run = partial(pausing, signals=Signals(2), pause=3, average=average)
    first, late = together(2, run)
    assert first.middle.equal(late.middle)
    # Both take (1 + 2) / 2; then replica 0 alone takes 1, of which members have the half.
    alone = 3 / 2 if average == "members" else 3.0
    assert (BEGIN - first.middle == 1.5 + alone).all()
    assert first.theta.equal(late.theta)
    assert first.stats["missed"] == 0
    assert late.stats["missed"] >= 3
    assert late.stats["discarded"] == 0
    # What replica 1 did late counts as much as what replica 0 did at the same time.
    if average == "members":
        assert (first.middle - late.theta == 1.5).all()


def test_who_missed_too_many_rounds_starts_again_from_the_shared_point() -> None:
    first, late = together(2, partial(pausing, signals=Signals(2), pause=3, patience=2))
    assert late.stats["discarded"] == 1
    assert first.stats["discarded"] == 0
    # Of what replica 1 did nothing came in, and replica 0 took 1 / 2 more.
    assert (first.middle - late.theta == 0.5).all()
    assert (late.after <= late.middle).all()
    assert (late.after >= late.theta).all()


def wandering(rank: int, membership: Any, seed: int, signals: Signals, **settings: Any) -> Any:
    """Steps with pauses now and then; the shared point at the end, and what is owed."""
    walker = Walker(rank, membership, patience=1000, average="members", **settings)
    pauses = random.Random(seed + rank)
    with walker.outer as outer:
        for _ in range(12):
            walker.step()
            time.sleep(pauses.choice([0.0, 0.0, 0.12]))
        outer.sync()
        signals.settle(walker)
        saved = outer.state_dict()
        owed = saved["residuals"] or {"0": torch.zeros(ELEMENTS), "1": torch.zeros(3)}
        return walker.theta(), torch.cat([owed["0"], owed["1"]]), shared(outer)


SETTINGS = [{}, {"delay": 1, "mix": "corrected"}, {"compressor": "top-k:20"}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_late_replicas_did_is_lost_or_counted_twice(seed: int, settings: Any) -> None:
    run = partial(wandering, seed=seed, signals=Signals(2), deadline=0.03, **settings)
    found = together(2, run)
    (theta, _, bits), (_, _, others) = found
    assert bits == others
    owed = sum(each for _, each, _ in found)
    moved = sum(12 * (rank + 1.0) for rank in range(2))
    assert (2 * (BEGIN - theta) + owed == moved).all()


def restarting(rank: int, membership: Any, signals: Signals) -> tuple[Tensor, Tensor]:
    """Replica 1 restarts while a sum is on its way."""
    settings = {"every": 2, "delay": 2, "mix": "corrected", "compressor": "top-k:20"}
    walker = Walker(rank, membership, deadline=None, **settings)
    with walker.outer as outer:
        walker.step()
        walker.step()
        if rank == 1:
            outer.restart()
        for _ in range(4):
            walker.step()
        outer.sync()
        signals.settle(walker)
        owed = outer.state_dict()["residuals"]
        return walker.theta(), torch.cat([owed["0"], owed["1"]])


def test_a_restart_leaves_alone_what_is_on_its_way() -> None:
    (theta, first), (_, second) = together(2, partial(restarting, signals=Signals(2)))
    # All steps of both, as the first two of replica 1 had been sent.
    assert (2 * (BEGIN - theta) + first + second == 6 * 1 + 6 * 2).all()
