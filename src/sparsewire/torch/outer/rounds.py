"""One round as a transaction: nothing of the state moves before all members have the sum."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.errors import CompressError
from sparsewire.torch.outer.adding import Adding
from sparsewire.torch.outer.members import Members
from sparsewire.torch.outer.passes import scale
from sparsewire.torch.outer.phases import Phase
from sparsewire.torch.outer.records import GIVING, Arrivals, Part, agreed, arrive
from sparsewire.torch.outer.state import ReplicaState
from sparsewire.torch.outer.stats import Counters
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector
from sparsewire.torch.outer.sums.whole import check_sum

_FLUSHING = (Part.FLUSHES, Part.LEAVES)


class Average(Enum):
    """What the sum is divided by."""

    MEMBERS = "members"
    """All replicas that have the shared state, as the formula of the papers has it."""
    CONTRIBUTORS = "contributors"
    """Those that contributed to the round."""

    @classmethod
    def _missing_(cls, value: object) -> Average:
        raise ValueError(f"average is over 'members' or 'contributors', and not {value!r}")


@dataclass
class Offer:
    """What the training loop brings to round `number`.

    `outcome` is set once the round has an end: None if it went by without this offer. `vector` is
    the turned delta, which stays as it is until then.
    """

    number: int
    part: Part = Part.LATE
    vector: Tensor | None = None
    moved: float = 0.0
    size: float = 0.0
    """The norm of `vector`, and that of the delta alone is `moved`."""
    worked: float = 0.0
    outcome: Future[Arrivals | None] = field(default_factory=Future)


class Prepared(NamedTuple):
    """A round that this member has voted for, and all that a commit applies."""

    number: int
    mean: Tensor
    offer: Offer
    added: Added
    arrivals: Arrivals
    drift: float


class Rounds:
    """The rounds of one replica. `enter` is told each phase."""

    def __init__(
        self,
        state: ReplicaState,
        adding: Adding,
        members: Members,
        average: Average,
        counters: Counters,
        enter: Callable[[Phase], None],
    ) -> None:
        self._state = state
        self._adding = adding
        self._sums = [adding.sums(each, i) for i, each in enumerate(state.fragments)]
        self._members = members
        self._average = average
        self._counters = counters
        self._enter = enter
        self.has_state = False
        self.prepared: Prepared | None = None
        self._queued: list[tuple[int, Tensor]] = []
        self._size = 0.0
        self._told: tuple[tuple[int, int], dict[str, Any]] | None = None

    def run(self, offer: Offer, slack: float) -> Arrivals:
        """Take part in one round; a collective call. The round counts for all members or for none.

        Others may arrive `slack` seconds later than a collective may take.

        Raises CompressError on every member if one cannot contribute or read a contribution,
        MismatchError if shared states differ, and the engine's errors.
        """
        begun = time.monotonic()
        self._enter(Phase.ARRIVING)
        arrivals = self._arrive(offer, slack)
        if arrivals.contributors:
            self._add(arrivals, offer)
            self._enter(Phase.COMMITTING)
            self.commit()
            seconds = time.monotonic() - begun
            self._counters.round_seconds = seconds
            up, down = self._members.count_bytes()
            peak = max(up, down) / seconds
            self._counters.peak_bytes_per_s = max(self._counters.peak_bytes_per_s, peak)
        return arrivals

    def _arrive(self, offer: Offer, slack: float) -> Arrivals:
        members = self._members
        own = self.survey()
        arrivals = arrive(
            members.communicator,
            members.epoch.members,
            members.timeout + slack,
            part=offer.part if self.has_state else Part.OBSERVES,
            moved=offer.moved,
            worked=offer.worked,
            wishes=members.wishes(),
            **own,
        )
        if not self._adding.is_paired:
            arrivals.check()
        members.note(arrivals)
        return arrivals

    def survey(self) -> dict[str, Any]:
        """What others are told of this replica's state; it takes passes over the state.

        The thread calls it while training goes on, so that a round finds it done. It takes no lock:
        but for a load, which is counted, only this thread writes what it reads.
        """
        state = self._state
        while self._told is None or self._told[0] != (state.rounds, state.loads):
            version = state.rounds, state.loads
            own = {
                "round": state.rounds,
                "digest": np.frombuffer(state.digest(), np.int64),
                "owed": state.owed,
            }
            self._told = version, own
            self._count_owed()
        return self._told[1]

    def _add(self, arrivals: Arrivals, offer: Offer) -> None:
        self._enter(Phase.ADDING)
        try:
            self.prepared, failure = self._sum(arrivals, offer), None
        except CompressError as error:
            failure = error
        self._enter(Phase.VOTING)
        members = self._members
        votes = agreed(members.communicator, failure is None, members.timeout)
        # Groups of other parts of the model must not decide otherwise.
        if not members.all_inside(all(votes)):
            self.give_up()
            raise _refused(members.epoch.members, votes, arrivals.round) from failure

    def _due(self, number: int) -> Sums:
        """The sums of a round's fragment."""
        return self._sums[number % len(self._sums)]

    def _sum(self, arrivals: Arrivals, offer: Offer) -> Prepared:
        number = arrivals.round
        sums = self._due(number)
        if self._adding.follows:
            sums.follow(_on_host(self._state.due(number).shared.vector))
        added = self._added(sums, arrivals, offer)
        mean, divisor = torch.from_numpy(added.total), self._divisor(arrivals)
        size = scale(mean, 1 / divisor)
        if not math.isfinite(size):
            raise CompressError(f"the sum of round {number} is not finite")
        if not self._adding.is_paired:
            size *= divisor / arrivals.contributors
        return Prepared(number, mean, offer, added, arrivals, arrivals.drift(size))

    def _added(self, sums: Sums, arrivals: Arrivals, offer: Offer) -> Added:
        """The sum of all contributions, with what members flush."""
        failure = self._unusable(offer)
        vector = self._given(offer) if failure is None else None
        try:
            added = sums.run(self._members.communicator, vector, self._members.timeout)
        except CompressError as error:
            failure = error
        # Others may know nothing of a failure here, and go on to the next call.
        flushed = self._flushed(arrivals, offer, sums.elements)
        if failure is not None:
            raise failure
        if flushed is not None:
            np.add(added.total, flushed, out=added.total)
        return added

    def _unusable(self, offer: Offer) -> CompressError | None:
        """Why this replica cannot contribute: what it has is not finite, or too large to add."""
        if math.isfinite(offer.size):
            return None
        return CompressError(
            f"the delta of this replica has a norm of {offer.size}: it contributes nothing"
        )

    def _given(self, offer: Offer) -> Any:
        """The vector that is coded; None if this replica contributes none."""
        if offer.vector is None or offer.part is not Part.CONTRIBUTES or not self.has_state:
            return None
        return self._adding.given(offer.vector)

    def _divisor(self, arrivals: Arrivals) -> int:
        if self._adding.is_paired:
            return 1  # Pairs give means.
        if self._average is Average.MEMBERS:
            return arrivals.holders
        return arrivals.contributors

    def _flushed(self, arrivals: Arrivals, offer: Offer, elements: int) -> Vector | None:
        """The sum of what the members that flush owe, as it is; zeros cost nothing."""
        if not any(part in _FLUSHING for part in arrivals.parts):
            return None
        own = _on_host(offer.vector) if offer.part in _FLUSHING else np.zeros(elements, np.float32)
        total = np.empty(elements, np.float32)
        self._members.communicator.all_reduce(own, out=total, timeout=self._members.timeout)
        check_sum(total)
        # Pairs give means.
        return total / np.float32(arrivals.holders) if self._adding.is_paired else total

    def commit(self) -> None:
        """Apply the prepared round; nothing can fail from here on."""
        prepared = self.prepared
        assert prepared is not None, "a round is prepared before it is committed"
        self.prepared = None
        sums = self._due(prepared.number)
        sums.commit()
        if not self.has_state:
            self._queued.append((prepared.number, prepared.mean.clone()))
            return
        with self._state.lock:
            self._apply(prepared, sums)
        self._count(prepared)

    def _apply(self, prepared: Prepared, sums: Sums) -> None:
        state = self._state
        due = state.due(prepared.number)
        offer, contributed = prepared.offer, prepared.offer.part in GIVING
        if due.residual is not None and offer.vector is not None:
            if offer.part in _FLUSHING:
                offer.vector.zero_()
            else:
                sums.take_off(prepared.added.sent, self._adding.given(offer.vector))
        due.commit(prepared.mean.to(due.fragment.device), contributed)
        state.rounds = prepared.number + 1
        state.missed = 0 if contributed else state.missed + 1

    def _count(self, prepared: Prepared) -> None:
        counters, contributed = self._counters, prepared.offer.part in GIVING
        counters.rounds += 1
        counters.contributed += contributed
        counters.missed += not contributed
        counters.contributors = prepared.added.contributors
        counters.drift = prepared.drift
        self._size = prepared.offer.size
        if contributed:
            counters.delta_norm = prepared.offer.moved

    def _count_owed(self) -> None:
        """Tell what the last contribution left, which takes a pass over the residual."""
        owed = self._state.due(self._state.rounds - 1).owed
        self._counters.residual_norm = owed
        if self._size:
            self._counters.certificate = 1 - (owed / self._size) ** 2

    def give_up(self) -> None:
        """The round in flight does not count."""
        for sums in self._sums:
            sums.abort()
        self.prepared = None
        self._counters.aborted += 1

    def look_on(self) -> None:
        """This replica has no shared state that counts, and waits for a copy."""
        if self.prepared is not None:
            self.give_up()
        self._queued.clear()
        self.has_state = False

    def reset_sums(self) -> None:
        """The members have changed: owners hand what they owe to residuals."""
        states = self._state.fragments
        with self._state.lock:
            for sums, state in zip(self._sums, states, strict=False):
                if state.residual is None:
                    self._counters.owed_lost += sums.reset()
                else:
                    owed = torch.zeros(state.fragment.elements)
                    sums.reset(owed.numpy())
                    if owed.any():
                        state.residual.inherit(owed.to(state.fragment.device))

    def take_over(self, rounds: int) -> None:
        """The shared state is here, of after `rounds` rounds: catch up with those that went by."""
        with self._state.lock:
            self._state.rounds = rounds
            for number, mean in self._queued:
                if number >= rounds:
                    due = self._state.due(number)
                    due.shared.advance(mean.to(due.fragment.device))
                    self._state.rounds = number + 1
        self._queued.clear()
        self._told = None
        self.has_state = True


def _on_host(vector: Tensor | None) -> NDArray[np.float32]:
    assert vector is not None, "a contribution has a vector"
    array: NDArray[np.float32] = vector.detach().cpu().numpy()
    return array


def _refused(members: Sequence[str], votes: Sequence[bool], number: int) -> CompressError:
    names = [repr(name) for name, vote in zip(members, votes, strict=True) if not vote]
    return CompressError(
        f"round {number} counts for no replica, because {', '.join(names)} could not contribute to "
        "it, or not read what others contributed. If training diverged there, lower its learning "
        "rate or call restart() there; the error on that replica says more."
    )
