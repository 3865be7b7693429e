"""The thread of rounds: takes part in each round of the others, whether or not the training loop is
there in time, and meets the others again when members come or go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np

from sparsewire.errors import CompressError, Error
from sparsewire.torch.outer.deadline import Deadline
from sparsewire.torch.outer.joining import Copying, Snapshot, give, most_words, take
from sparsewire.torch.outer.members import Members, ends_epoch
from sparsewire.torch.outer.phases import Phase
from sparsewire.torch.outer.records import GIVING, Arrivals, Part
from sparsewire.torch.outer.rounds import Offer, Prepared, Rounds
from sparsewire.torch.outer.state import ReplicaState

_LOOK_S = 0.1
"""How often a thread that waits for the training loop looks whether the others meet."""


class RoundThread:
    """Runs the rounds of one replica, one after another."""

    def __init__(
        self,
        state: ReplicaState,
        rounds: Callable[[Callable[[Phase], None]], Rounds],
        members: Members,
        grace: float | None,
    ) -> None:
        self.phase = Phase.WAITING
        self.joined = threading.Event()
        """Set once this replica has the shared state, or cannot get it."""
        self.error: BaseException | None = None
        self._state = state
        self._members = members
        self._rounds = rounds(self.enter)
        self._deadline = Deadline(grace)
        self._changed = threading.Condition()
        self._offer: Offer | None = None
        self._closing = False
        self._copying: Copying | None = None
        self._thread = threading.Thread(target=self._live, name="sparsewire-rounds", daemon=True)
        self._thread.start()

    def enter(self, phase: Phase) -> None:
        """The thread enters a phase."""
        self.phase = phase

    @property
    def place(self) -> tuple[int, int]:
        """This replica's rank among the members of now, and their number."""
        epoch = self._members.epoch
        return epoch.rank, len(epoch.members)

    def offer(self, offer: Offer) -> Offer:
        """Bring an offer, which the next round takes. Raises what ended the thread."""
        with self._changed:
            self._check()
            self._offer = offer
            self._changed.notify_all()
        return offer

    def stop(self) -> None:
        """Have the thread end after the round in flight, and leave. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
        if self._closing:
            raise Error("the outer optimizer is closed: make a new one")

    def _live(self) -> None:
        try:
            self._meet(())
            while not self._closing:
                self._take_part()
        except BaseException as error:
            self._fail(error)
        finally:
            self.enter(Phase.ENDED)
            # First whoever waits, since a membership may fail to close.
            self._end_offer(Error("the outer optimizer was closed before the round"))
            self.joined.set()
            self._members.close()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
        self._end_offer(error)

    def _end_offer(self, error: BaseException) -> None:
        with self._changed:
            offer, self._offer = self._offer, None
        if offer is not None and not offer.outcome.done():
            offer.outcome.set_exception(error)

    def _take_part(self) -> None:
        """Wait for the training loop, or for the deadline, and take part in one round."""
        self.enter(Phase.WAITING)
        self._rounds.survey()
        try:
            offer = self._awaited() if self._rounds.has_state else self._observed()
            if self._closing:
                return
            # A replica contributes with all its workers, or not at all.
            gives = offer.part in GIVING and self._rounds.has_state
            if not self._members.all_inside(gives):
                offer = Offer(offer.number)
            arrivals = self._rounds.run(offer, self._deadline.slack())
        except CompressError as error:
            # The round counts for nobody. The training loops are told, and may go on.
            self._deadline.begin()
            self._end_offer(error)
        except Error as error:
            if not ends_epoch(error):
                raise
            self._meet(self._members.lost_by(error))
        else:
            self._settle(offer, arrivals)

    def _settle(self, offer: Offer, arrivals: Arrivals) -> None:
        self._deadline.begin(arrivals)
        leaving = arrivals.names(Part.LEAVES)
        if arrivals.contributors:
            self._end(offer, arrivals)
        if offer.part is Part.LEAVES:
            self._closing = True
        elif leaving or arrivals.has_wishes:
            self._members.forget(leaving)
            self._meet(leaving)

    def _awaited(self) -> Offer:
        """The training loop's offer, or that of a replica that is late.

        Raises the engine's errors if the others meet meanwhile: they do not wait for inner steps.
        """
        with self._changed:
            while not self._closing:
                if self._offer is not None and self._offer.number == self._state.rounds:
                    return self._offer
                self._end(self._offer, None)
                left = self._deadline.left()
                if left <= 0:
                    return Offer(self._state.rounds)
                self._changed.wait(min(left, _LOOK_S))
                self._members.check()
            return Offer(self._state.rounds)

    def _end(self, offer: Offer | None, arrivals: Arrivals | None) -> None:
        """An offer's round is committed; None: it went by without the offer."""
        with self._changed:
            if offer is not None and self._offer is offer:
                self._offer = None
        if offer is not None and not offer.outcome.done():
            offer.outcome.set_result(arrivals)

    def _observed(self) -> Offer:
        """Take over the copy if it is there; until then, only look on."""
        copying = self._copying
        if copying is not None and copying.snapshot.done():
            self._copying = None
            self._take_over(_copied(copying))
        return Offer(self._state.rounds)

    def _take_over(self, snapshot: Snapshot) -> None:
        snapshot.load_into(self._state)
        self._rounds.take_over(snapshot.rounds)
        self.joined.set()

    def _meet(self, lost: Collection[str]) -> None:
        """Agree on who takes part, and bring all to one round: forward if one has committed."""
        self.enter(Phase.MEETING)
        rounds, prepared = self._rounds, self._rounds.prepared
        committed = self._state.rounds
        self._members.meet(
            lost,
            committed=committed,
            prepared=committed if prepared is None else prepared.number + 1,
            has_state=rounds.has_state,
        )
        standings = self._members.standings
        holders = standings["has_state"] == 1
        top = int(standings["committed"][holders].max()) if holders.any() else 0
        if not holders[self._members.epoch.rank]:
            rounds.look_on()
        elif prepared is not None:
            self._resolve(prepared, is_counted=top > prepared.number)
        rounds.reset_sums()
        if holders.any():
            self._copy(holders & (np.maximum(standings["prepared"], standings["committed"]) >= top))
        else:
            self._begin_again_if_one_is_lost()

    def _resolve(self, prepared: Prepared, is_counted: bool) -> None:
        """If one member has committed the round that was in flight, all do; else nobody does.

        A member commits only after all have voted for the round, so all others have it prepared.
        """
        if is_counted:
            self._rounds.commit()
            self._end(prepared.offer, prepared.arrivals)
        else:
            self._rounds.give_up()

    def _begin_again_if_one_is_lost(self) -> None:
        try:
            self._begin()
        except Error as error:
            if not ends_epoch(error):
                raise
            self._meet(self._members.lost_by(error))

    def _begin(self) -> None:
        """Nobody has a shared state yet: it is that of rank 0."""
        members = self._members
        if members.epoch.rank == 0:
            give(members.communicator, Snapshot.of(self._state), members.timeout)
            self._rounds.has_state = True
            self.joined.set()
        else:
            self._take_over(take(members.communicator, members.timeout, most_words(self._state)))
            for each in self._state.fragments:
                each.base = None

    def _copy(self, holders: Any) -> None:
        """Begin copies of the shared state: the first that has it gives it to all that do not."""
        epoch, timeout = self._members.epoch, self._members.timeout
        donor = int(np.argmax(holders))
        receivers = [rank for rank, holds in enumerate(holders) if not holds]
        if epoch.rank == donor and receivers:
            snapshot = Snapshot.of(self._state)
            for rank in receivers:
                connect = partial(self._members.connected_pair, epoch, f"copy-{rank}", 0)
                Copying(connect, snapshot, timeout)
        elif epoch.rank in receivers:
            self._rounds.look_on()
            connect = partial(self._members.connected_pair, epoch, f"copy-{epoch.rank}", 1)
            self._copying = Copying(connect, None, timeout, most_words(self._state))


def _copied(copying: Copying) -> Snapshot:
    """The snapshot that was taken.

    Raises Error, after which the members meet and name another that gives it, and others as is.
    """
    try:
        snapshot = copying.snapshot.result()
    except Error as error:
        if not ends_epoch(error):
            raise
        raise Error(f"the copy of the shared state did not arrive: {error}") from error
    assert snapshot is not None, "a copy that was taken is there"
    return snapshot
