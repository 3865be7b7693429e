"""An aggregator of slots as plain as can be: what the programs in the kernel must do as well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from slot_wire import CONTRIBUTION, NO_BLOCK, RECALL, RESULT, Slotted

ROUNDS = 1 << 64
NOBODY, PARENT, EVERYONE = -1, 254, 255


@dataclass
class Round:
    """One of the two rounds that a slot keeps."""

    number: int
    complete: bool = True
    has_result: bool = False
    block: int = 0
    contributions: dict[int, Slotted] = field(default_factory=dict)
    last: int = 0
    waits: bool = False
    """Whether the parent has its sums, and has not said what comes of them."""
    urged: int = NOBODY
    """Who had them sent there again."""
    told: Slotted | None = None
    """What the parent has said."""

    @property
    def has_ended(self) -> bool:
        return self.complete and not self.waits

    @property
    def next(self) -> int:
        if self.told:
            return self.told.next
        return min((c.next for c in self.contributions.values()), default=NO_BLOCK)

    @property
    def exponent(self) -> int:
        if self.told:
            return self.told.exponent
        announced = [c.exponent for c in self.contributions.values() if c.next == self.next]
        return max(announced, default=0)

    @property
    def sums(self) -> tuple[int, ...]:
        """Wrapping sums of 32 bits over those who have values; empty where nobody has any."""
        if self.told:
            return self.told.values
        blocks = [c.values for c in self.contributions.values() if c.values]
        totals = (sum(each) for each in zip(*blocks, strict=True))
        return tuple((total + (1 << 31)) % (1 << 32) - (1 << 31) for total in totals)


@dataclass(frozen=True)
class Answer:
    """What goes out, and to whom: a worker, EVERYONE or NOBODY."""

    to: int
    datagram: Slotted | None = None


class SlotModel:
    """One job at an aggregator; of a rack's, `rack` is which of its parent's workers it is."""

    def __init__(self, workers: int, rack: int | None = None) -> None:
        self._workers, self._rack = workers, rack
        self.slots: dict[int, list[Round]] = {}
        self.counts: Counter[str] = Counter()

    def take(self, came: Slotted) -> Answer:
        """What a valid contribution calls for."""
        rounds = self.slots.setdefault(came.slot, [Round(ROUNDS - 2), Round(ROUNDS - 1)])
        own, other = rounds[came.round % 2], rounds[1 - came.round % 2]
        before = (came.round - 1) % ROUNDS
        if came.round == own.number and own.waits:
            own.urged = came.worker
            self.counts["duplicates"] += 1
            return self._pass(came, own, "passed_again")
        if came.round == own.number and (own.has_result or not own.complete):
            return self._again(came, own, other)
        follows = (own.number + 2) % ROUNDS == came.round and other.number == before
        if follows and own.has_ended and other.has_ended:
            rounds[came.round % 2] = own = Round(came.round, False, block=came.block)
            return self._add(came, own)
        self.counts["stale"] += 1
        return Answer(NOBODY)

    def hear(self, came: Slotted) -> Answer:
        """What a valid result or recall of the parent calls for."""
        rounds = self.slots.setdefault(came.slot, [Round(ROUNDS - 2), Round(ROUNDS - 1)])
        own, next_ = rounds[came.round % 2], rounds[1 - came.round % 2]
        if own.number == came.round and own.waits:
            return self._end(came, own)
        is_begun = next_.number == (came.round + 1) % ROUNDS and next_.block > 0
        if came.kind == RECALL and is_begun and next_.waits:
            return self._pass(came, next_, "passed_again")
        is_last = next_.number == (came.round - 1) % ROUNDS and own.number == came.round
        lacks = own.has_ended if is_last else is_begun and not next_.complete
        if came.kind == RECALL and lacks:
            self.counts["recalls"] += 1
            return Answer(0 if is_last else self._late(next_), self._told(came, own, RECALL))
        self.counts["stale"] += 1
        return Answer(NOBODY)

    def _end(self, came: Slotted, own: Round) -> Answer:
        if came.block != own.block:
            self.counts["rejected"] += 1
            return Answer(NOBODY)
        self.counts["results"] += 1
        own.waits, own.has_result, own.told = False, True, came
        if came.worker == self._rack and own.urged != NOBODY:
            own.last = own.urged
        return Answer(EVERYONE, self._told(came, own, RESULT))

    def _pass(self, came: Slotted, own: Round, what: str) -> Answer:
        self.counts[what] += 1
        told = self._told(came, own, CONTRIBUTION)
        return Answer(PARENT, told.but(worker=self._rack, above=True))

    def _late(self, own: Round) -> int:
        return min(set(range(self._workers)) - own.contributions.keys())

    def _again(self, came: Slotted, own: Round, other: Round) -> Answer:
        if own.complete:
            self.counts["duplicates"] += 1
            self.counts["resent"] += 1
            return Answer(came.worker, self._told(came, own, RESULT))
        if came.worker in own.contributions:
            self.counts["duplicates"] += 1
            self.counts["recalls"] += 1
            return Answer(self._late(own), self._told(came, other, RECALL))
        return self._add(came, own)

    def _add(self, came: Slotted, own: Round) -> Answer:
        if came.block != own.block:
            self.counts["rejected"] += 1
            return Answer(NOBODY)
        self.counts["contributions"] += 1
        own.contributions[came.worker] = came
        own.last = came.worker
        if len(own.contributions) < self._workers:
            return Answer(NOBODY)
        own.complete = True
        if self._rack is not None:
            own.waits = True
            return self._pass(came, own, "passed")
        self.counts["results"] += 1
        own.has_result = True
        return Answer(EVERYONE, self._told(came, own, RESULT))

    @staticmethod
    def _told(came: Slotted, of: Round, kind: int) -> Slotted:
        return came.but(
            kind=kind,
            worker=of.last,
            round=of.number,
            next=of.next,
            exponent=of.exponent,
            values=of.sums,
            block=of.block or came.block,
            above=False,
        )
