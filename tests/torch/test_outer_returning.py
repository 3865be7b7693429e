"""Replicas that the others went on without in the middle of a round, and that come back: what they
know of the shared state then is not what the others know."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from outer_threads import names_of, shared, together
from test_outer_late import WAIT_S, Signals, Walker

from sparsewire.errors import Error
from sparsewire.torch.outer import StoreMembership
from sparsewire.torch.outer.phases import Phase
from sparsewire.torch.outer.round_thread import RoundThread

pytestmark = pytest.mark.timeout(60)

BREAKS_AT = 2
LIMIT = timedelta(seconds=WAIT_S)


class Tardy(StoreMembership):
    """Comes to the first meeting when the others have gone on without it."""

    def reconfigure(self, last: Any, lost: Any) -> Any:
        if last is not None and last.number == 0:
            self._store.wait(["1/list"], LIMIT)
        return super().reconfigure(last, lost)


class Kind(StoreMembership):
    """Goes on alone, and lets a replica in that asks again, before a round or `after` one."""

    after = 0

    def wishes(self, epoch: Any) -> bool:
        if epoch.number == 1:
            if not self.after:
                self._store.wait([f"wish/{self._answered}"], LIMIT)
            self.after -= 1
        return super().wishes(epoch)


def break_before_its_vote(thread: RoundThread) -> None:
    """The connections of a replica break once, as it is about to vote."""
    rounds, enter = thread._rounds, thread.enter

    def watched(phase: Phase) -> None:
        enter(phase)
        if phase is Phase.VOTING and thread._state.rounds == BREAKS_AT:
            rounds._enter = enter
            thread._members.communicator.abort("a test broke it")

    rounds._enter = watched


def break_after_its_vote(thread: RoundThread) -> None:
    """A replica fails once, when it knows all votes and has committed nothing."""
    members = thread._members
    all_inside = members.all_inside

    def watched(is_so: bool) -> bool:
        if thread._rounds.prepared is not None and thread._state.rounds == BREAKS_AT:
            members.all_inside = all_inside  # type: ignore[method-assign]
            raise Error("a test broke it")
        return all_inside(is_so)

    members.all_inside = watched  # type: ignore[method-assign]


def returning(
    rank: int, membership: Any, signals: Signals, after: int, breaks: dict[int, Any]
) -> Any:
    """Replica 1 misses the meeting within a round, and returns when replica 0 has repeated it."""
    kind = Tardy if rank else Kind
    membership = kind(membership._store, names_of(2)[rank], 2, grace=0.2, first=names_of(2))
    membership.after = after
    walker = Walker(rank, membership, deadline=0.2, patience=1000)
    with walker.outer as outer:
        breaks.get(rank, lambda _: None)(outer._thread)
        walker.steps_until(BREAKS_AT + 6)
        signals.settle(walker)
        return shared(outer), outer.stats()


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("breaks", [{1: break_before_its_vote}, {0: break_after_its_vote}])
def test_who_missed_how_a_round_ended_takes_the_state_of_the_others(
    breaks: dict[int, Any], after: int
) -> None:
    run = partial(returning, signals=Signals(2), after=after, breaks=breaks)
    (first, _), (other, stats) = together(2, run)
    assert first == other
    assert stats["epochs"] >= 2
