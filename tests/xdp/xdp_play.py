"""Random plays of workers before the programs, with a plain model that sees the same datagrams."""

from __future__ import annotations

import random

from slot_model import PARENT, ROUNDS, Answer, Round, SlotModel
from slot_wire import NO_BLOCK, RECALL, RESULT, Slotted, decoded
from xdp_kernel import DROP, RACK, RACKS, REDIRECT, ROOT, Kernel

from sparsewire.xdp.maps import SLOTS, Version

JOB, KEY = 0x1122334455667788, bytes(range(32))
EVENTS = 150

NO_COUNTS = dict.fromkeys(
    (
        "contributions",
        "duplicates",
        "stale",
        "rejected",
        "results",
        "resent",
        "recalls",
        "passed",
        "passed_again",
    ),
    0,
)


def play(
    programs: Kernel, seed: int, workers: int, *, in_rack: bool = False, flows: int = 1
) -> None:
    """One play, with a job of its own; raises AssertionError where the two differ."""
    programs.add_job(JOB, workers, KEY, root=ROOT if in_rack else None, flows=flows)
    try:
        playing = (RackPlay if in_rack else Play)(programs, workers, random.Random(seed))
        for _ in range(EVENTS):
            playing.step()
        playing.check_state()
    finally:
        programs.plane.remove_job(JOB)


class Play:
    """Workers that follow the protocol now and then, and a model that sees the same datagrams."""

    def __init__(self, programs: Kernel, workers: int, draw: random.Random) -> None:
        self._programs, self._workers, self._draw = programs, workers, draw
        self._model = self._model_of(workers)
        self._last: dict[tuple[int, int], Slotted] = {}
        self._sent: list[Slotted] = []
        self._slots = draw.sample(range(SLOTS), 2)
        # Alike on all workers, as the operations are.
        self._blocks = {slot: draw.choice([16, 32, 240, 256]) for slot in self._slots}

    @staticmethod
    def _model_of(workers: int) -> SlotModel:
        return SlotModel(workers)

    def step(self) -> None:
        """One datagram: mostly the one that the protocol asks for, or any that was sent before."""
        worker, slot = self._draw.randrange(self._workers), self._draw.choice(self._slots)
        if self._sent and self._draw.random() < 0.15:
            sent = self._draw.choice(self._sent)
        else:
            sent = self._next_of(worker, slot)
        self._sent.append(sent)
        self.deliver(sent)

    def deliver(self, sent: Slotted) -> None:
        answer = self._model.take(sent)
        self._check_answer(sent, answer, *self._programs.send(sent.worker, sent.encoded()))

    def _check_answer(self, sent: Slotted, answer: Answer, verdict: int, data: bytes) -> None:
        if answer.datagram is None:
            assert verdict == DROP
            return
        assert verdict == REDIRECT
        assert answer.datagram == decoded(data[42:], KEY, above=answer.to == PARENT)
        to = sent.slot, answer.datagram.round & 1, answer.to
        assert self._programs.addressee(JOB, data) == to

    def check_state(self) -> None:
        assert self._programs.plane.stats(JOB) == {**NO_COUNTS, **self._model.counts}
        for slot, rounds in self._model.slots.items():
            for ours, its in zip(rounds, self._programs.slot(JOB, slot).version, strict=True):
                check_round(ours, its, self._workers)

    def _next_of(self, worker: int, slot: int) -> Slotted:
        """What follows what this worker sent there last, or the same again if no result came."""
        last = self._last.get((worker, slot))
        if last is not None and not self._has_result(slot, last.round):
            ahead = self._draw.choice([1, 2, 7]) if self._draw.random() < 0.05 else 0
            return last.but(round=last.round + ahead)
        sent = Slotted(
            JOB,
            worker,
            slot,
            0 if last is None else last.round + 1,
            next=self._draw.choice([0, 5, 6, 1 << 31, NO_BLOCK - 1, NO_BLOCK]),
            exponent=self._draw.choice([0, 1, 127, 255]),
            values=self._values(self._blocks[slot]),
            block=self._blocks[slot],
            key=KEY,
        )
        self._last[worker, slot] = sent
        return sent

    def _has_result(self, slot: int, number: int) -> bool:
        rounds = self._model.slots.get(slot, [])
        return any(r.number == number and r.has_result for r in rounds)

    def _values(self, block: int) -> tuple[int, ...]:
        if self._draw.random() < 0.5:
            return ()
        return tuple(self._draw.randrange(-(1 << 31), 1 << 31) for _ in range(block))


class RackPlay(Play):
    """With a root, which answers what was passed to it, says so again, and recalls in vain."""

    @staticmethod
    def _model_of(workers: int) -> SlotModel:
        return SlotModel(workers, RACK)

    def step(self) -> None:
        if self._draw.random() < 0.35:
            self._hear(self._result_in(self._draw.choice(self._slots)))
        else:
            super().step()

    def _hear(self, told: Slotted) -> None:
        answer = self._model.hear(told)
        self._check_answer(told, answer, *self._programs.send_down(told.encoded()))

    def _result_in(self, slot: int) -> Slotted:
        """Mostly of the round that waits, or of one nearby."""
        rounds = self._model.slots.get(slot, [Round(ROUNDS - 1)])
        waiting = [r.number for r in rounds if r.waits]
        number = self._draw.choice(waiting or [r.number for r in rounds])
        if self._draw.random() < 0.2:
            number += self._draw.choice([-2, -1, 1])
        block = self._blocks[slot] if self._draw.random() < 0.95 else 48
        return Slotted(
            JOB,
            self._draw.randrange(RACKS),
            slot,
            number % ROUNDS,
            next=self._draw.choice([0, 5, NO_BLOCK]),
            exponent=self._draw.choice([0, 127, 255]),
            values=self._values(block),
            kind=self._draw.choice([RESULT, RESULT, RECALL]),
            block=block,
            key=KEY,
            above=True,
        )


def phase_of(ours: Round) -> int:
    """As enum phase of bpf/slot.h has it."""
    idle, is_open, above, complete = range(4)
    if not ours.block:
        return idle
    return above if ours.waits else complete if ours.has_ended else is_open


def check_round(ours: Round, its: Version, workers: int) -> None:
    missing = set(range(workers)) - ours.contributions.keys() if ours.block else set()
    assert its.turn == ((ours.number >> 1) + 1) % (1 << 63)
    assert its.missing == sum(1 << worker for worker in missing)
    assert ~its.reach & 0xFFFFFFFF == ours.next
    assert its.exponent == ours.exponent
    assert (its.phase, its.urged - 1) == (phase_of(ours), ours.urged)
    assert bool(its.present) == bool(ours.sums)
    assert [value & 0xFFFFFFFF for value in ours.sums] == list(its.sums)[: len(ours.sums)]
