"""What replicas did is counted once, whatever comes between: a wait that is interrupted, a replica
that leaves late or with nonsense, owners that changed, rounds that did not count."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import pytest
import torch
from outer_threads import together
from test_outer_late import BEGIN, ELEMENTS, Signals, Walker, await_rounds
from test_outer_properties import state_of

from sparsewire.errors import CompressError, MismatchError
from sparsewire.torch.outer import checkpoint
from sparsewire.torch.outer.adding import Adding
from sparsewire.torch.outer.joining import Snapshot
from sparsewire.torch.outer.residual import Residual
from sparsewire.torch.outer.rounds import Average, Offer, Prepared, Rounds
from sparsewire.torch.outer.stats import Counters

pytestmark = pytest.mark.timeout(60)


def interrupt_once(offer: Offer) -> Offer:
    """The round ends while the training loop is interrupted."""
    result = offer.outcome.result

    def interrupted(timeout: float | None = None) -> Any:
        result(timeout)
        offer.outcome.result = result  # type: ignore[method-assign]
        raise KeyboardInterrupt

    offer.outcome.result = interrupted  # type: ignore[method-assign]
    return offer


def interrupted(rank: int, membership: Any, mix: float | str) -> Any:
    walker = Walker(rank, membership, deadline=math.inf, mix=mix)
    offer = walker.outer._offer
    with walker.outer as outer:
        for step in range(5):
            if rank == 0 and step == 2:
                outer._offer = lambda part: interrupt_once(offer(part))  # type: ignore[method-assign]
                with pytest.raises(KeyboardInterrupt):
                    walker.step()
                outer._offer = offer  # type: ignore[method-assign]
            else:
                walker.step()
        return walker.theta()


@pytest.mark.parametrize(("mix", "lost"), [("corrected", 0.0), (0.0, 1.0)])
def test_a_round_whose_wait_was_interrupted_counts_once(mix: float | str, lost: float) -> None:
    first, second = together(2, partial(interrupted, mix=mix))
    assert first.equal(second)
    # Without correction, the step from which the loop lands is mixed away.
    assert (2 * (BEGIN - first) == 5 * 3.0 - lost).all()


def leaving_diverged(rank: int, membership: Any) -> Any:
    walker = Walker(rank, membership, deadline=math.inf)
    with walker.outer as outer:
        walker.step()
        if rank == 1:
            with torch.no_grad():
                walker.model[0][0] = math.nan
            with pytest.raises(CompressError):
                outer.leave()
            outer.restart()
            outer.leave()
            return None
        with pytest.raises(CompressError):
            walker.step()
        outer.restart()
        walker.step()
        return walker.theta()


def test_who_leaves_with_nonsense_is_refused() -> None:
    theta, _ = together(2, leaving_diverged)
    assert (BEGIN - theta == 1.5 + 0.5).all()


def leaving_a_pair(rank: int, membership: Any) -> Any:
    walker = Walker(rank, membership, deadline=math.inf, topology="pairs")
    with walker.outer as outer:
        if rank == 1:
            walker.model[0].data -= 4
            outer.leave()
            return None
        walker.step()
        return walker.theta()[:ELEMENTS]


def test_who_leaves_pairs_gives_each_other_replica_its_share() -> None:
    theta, _ = together(2, leaving_a_pair)
    assert (BEGIN - theta == 1 + 4 / 2).all()


def leaving_late(rank: int, membership: Any, signals: Signals) -> Any:
    """Replica 1 leaves when it has missed more rounds than replica 0 has patience for."""
    walker = Walker(rank, membership, patience=0)
    with walker.outer as outer:
        walker.step()
        if rank == 1:
            await_rounds(walker, 3)
            outer.leave()
            signals.go.set()
            return None
        while not signals.go.is_set():
            walker.step()
        walker.step()
        return outer.stats()


def test_who_leaves_late_still_leaves_in_order() -> None:
    stats, _ = together(2, partial(leaving_late, signals=Signals(2)))
    assert stats["lost"] == []
    assert stats["members"] == 1


def alone_beside_one_that_is_late(rank: int, membership: Any, signals: Signals) -> Any:
    walker = Walker(rank, membership, patience=1000)
    with walker.outer as outer:
        walker.step()
        if rank == 1:
            assert signals.go.wait(20)
            return None
        walker.steps_until(3)
        drift = outer.stats()["drift"]
        signals.go.set()
        return drift


def test_one_contributor_alone_does_not_drift() -> None:
    drift, _ = together(2, partial(alone_beside_one_that_is_late, signals=Signals(2)))
    assert drift == pytest.approx(0.0, abs=1e-2)


def slow(rank: int, membership: Any) -> dict[str, Any]:
    """The second phase of replica 1 takes longer than a collective may."""
    walker = Walker(rank, membership, deadline=math.inf, timeout=1.0)
    with walker.outer as outer:
        walker.step()
        time.sleep(2.5 * rank)
        walker.step()
        walker.step()
        return outer.stats()


def test_a_deadline_may_be_longer_than_the_time_limit_of_collectives() -> None:
    for stats in together(2, slow):
        assert stats["epochs"] == 1
        assert stats["contributed"] == 3


def test_what_was_inherited_while_an_offer_was_made_again_is_owed_once() -> None:
    residual = Residual(torch.zeros(2), 1.0)
    first, later = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 8.0])
    residual.inherit(first)
    turned = torch.zeros(2)
    residual.turn(turned)
    residual.inherit(later)
    residual.take(turned)
    assert residual.whole().equal(first + later)


def test_a_snapshot_of_other_fragments_is_refused() -> None:
    with pytest.raises(MismatchError, match="3 fragments, and here are 2"):
        Snapshot.of(state_of(1, 0, fragments=3)).load_into(state_of(1, 0, fragments=2))


def test_means_of_rounds_that_did_not_count_are_forgotten() -> None:
    state = state_of(1, 4)
    adding = Adding("dense", "all", "auto", None, 0)
    rounds = Rounds(state, adding, None, Average.MEMBERS, Counters(), lambda _: None)  # type: ignore[arg-type]
    before = state.digest()
    mean = torch.ones(state.due(4).fragment.elements)
    rounds.prepared = Prepared(4, mean, Offer(4), None, None, 0.0)  # type: ignore[arg-type]
    rounds.commit()
    rounds.look_on()
    rounds.take_over(4)
    assert state.digest() == before
    assert state.rounds == 4


def test_a_late_replica_goes_on_from_a_saved_state_with_its_delta() -> None:
    state, other = state_of(1, 4), state_of(1, 4)
    late = state.fragments[0]
    late.keep_base()
    late.shared.advance(torch.ones(late.fragment.elements))
    checkpoint.load(other, checkpoint.saved(state, 7, 0, 1), 0, 1)
    for one, again in zip(state.fragments, other.fragments, strict=True):
        assert one.turned()[0].equal(again.turned()[0])
