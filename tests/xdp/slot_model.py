"""An aggregator of slots as plain as can be: what the programs in the kernel must do as well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from slot_wire import NO_BLOCK, RECALL, RESULT, Slotted

ROUNDS = 1 << 32
NOBODY, EVERYONE = -1, 255


@dataclass
class Round:
    """One of the two rounds that a slot keeps."""

    number: int
    complete: bool = True
    has_result: bool = False
    block: int = 0
    contributions: dict[int, Slotted] = field(default_factory=dict)
    last: int = 0

    @property
    def next(self) -> int:
        return min((c.next for c in self.contributions.values()), default=NO_BLOCK)

    @property
    def exponent(self) -> int:
        announced = [c.exponent for c in self.contributions.values() if c.next == self.next]
        return max(announced, default=0)

    @property
    def sums(self) -> tuple[int, ...]:
        """Wrapping sums of 32 bits over those who have values; empty where nobody has any."""
        blocks = [c.values for c in self.contributions.values() if c.values]
        totals = (sum(each) for each in zip(*blocks, strict=True))
        return tuple((total + (1 << 31)) % (1 << 32) - (1 << 31) for total in totals)


@dataclass(frozen=True)
class Answer:
    """What goes out, and to whom: a worker, EVERYONE or NOBODY."""

    to: int
    datagram: Slotted | None = None


class SlotModel:
    """One job at an aggregator."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.slots: dict[int, list[Round]] = {}
        self.counts: Counter[str] = Counter()

    def take(self, came: Slotted) -> Answer:
        """What a valid contribution calls for."""
        rounds = self.slots.setdefault(came.slot, [Round(ROUNDS - 2), Round(ROUNDS - 1)])
        own, other = rounds[came.round % 2], rounds[1 - came.round % 2]
        before = (came.round - 1) % ROUNDS
        if came.round == own.number and (own.has_result or not own.complete):
            return self._again(came, own, other)
        follows = (own.number + 2) % ROUNDS == came.round and other.number == before
        if follows and own.complete and other.complete:
            rounds[came.round % 2] = own = Round(came.round, False, block=came.block)
            return self._add(came, own)
        self.counts["stale"] += 1
        return Answer(NOBODY)

    def _again(self, came: Slotted, own: Round, other: Round) -> Answer:
        if own.complete:
            self.counts["duplicates"] += 1
            self.counts["resent"] += 1
            return Answer(came.worker, self._told(came, own, RESULT))
        if came.worker in own.contributions:
            self.counts["duplicates"] += 1
            self.counts["recalls"] += 1
            late = min(set(range(self._workers)) - own.contributions.keys())
            return Answer(late, self._told(came, other, RECALL))
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
        self.counts["results"] += 1
        own.complete = own.has_result = True
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
        )
