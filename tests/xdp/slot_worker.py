"""A worker of slots in plain Python, over a real socket for each of its flows, that loses and
repeats datagrams."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from slot_wire import NO_BLOCK, RECALL, RESULT, Slotted, decoded, flow_of

SLOTS, BLOCK = 8, 64
# From one slot to the next that is used, so that all flows are.
SPACING = 9
PATIENCE_S = 0.03


@dataclass
class Progress:
    """Where one slot is."""

    sent: Slotted
    own: int
    """The next block here that this worker has values of."""
    current: int = NO_BLOCK
    """The block whose sums the awaited result brings."""
    done: bool = False
    sent_at: float = 0.0


class SlotWorker:
    """Sums up one vector of int32, in whole blocks, of which those of zeros are not sent."""

    def __init__(
        self,
        number: int,
        vector: np.ndarray,
        flows: Sequence[socket.socket],
        first: Slotted,
        loss: float,
    ) -> None:
        self._blocks = vector.reshape(-1, BLOCK)
        self.out = np.zeros_like(self._blocks)
        self._flows, self._loss = flows, loss
        self._draw = random.Random(f"{number} {loss}")
        self._slots = [self._opened(slot, first.but(worker=number)) for slot in range(SLOTS)]

    @property
    def is_done(self) -> bool:
        return all(progress.done for progress in self._slots)

    def send_late(self, now: float) -> None:
        """Send what is not answered yet, first or once more."""
        for progress in self._slots:
            if not progress.done and now - progress.sent_at > PATIENCE_S:
                self._send(progress, now)

    def receive(self, now: float) -> None:
        """Take everything that has come."""
        for number, flow in enumerate(self._flows):
            self._receive_by(number, flow, now)

    def _receive_by(self, number: int, flow: socket.socket, now: float) -> None:
        while True:
            try:
                data = flow.recv(2048)
            except BlockingIOError:
                return
            if self._draw.random() >= self._loss:
                came = decoded(data, self._slots[0].sent.key)
                assert flow_of(came.slot, len(self._flows)) == number
                self._take(came, now)

    def _opened(self, slot: int, first: Slotted) -> Progress:
        own = self._after(slot - SLOTS)
        return Progress(first.but(slot=slot * SPACING, next=own, exponent=slot, block=BLOCK), own)

    def _after(self, block: int) -> int:
        later = range(block + SLOTS, len(self._blocks), SLOTS)
        return next((each for each in later if self._blocks[each].any()), NO_BLOCK)

    def _send(self, progress: Progress, now: float) -> None:
        progress.sent_at = now
        for _ in range(2 if self._draw.random() < self._loss else 1):
            if self._draw.random() >= self._loss:
                flow = self._flows[flow_of(progress.sent.slot, len(self._flows))]
                # A full buffer is one more way to lose a datagram.
                with contextlib.suppress(BlockingIOError):
                    flow.send(progress.sent.encoded())

    def _take(self, came: Slotted, now: float) -> None:
        progress = self._slots[came.slot // SPACING]
        awaited = progress.sent.round
        assert came.kind in (RESULT, RECALL)
        if came.round == awaited and not progress.done:
            self._advance(progress, came)
            if not progress.done:
                self._send(progress, now)
        elif came.kind == RECALL and came.round == awaited - 1:
            self._send(progress, now)

    def _advance(self, progress: Progress, result: Slotted) -> None:
        if progress.current != NO_BLOCK:
            self.out[progress.current] = result.values or 0
        progress.current, progress.done = result.next, result.next == NO_BLOCK
        mine = result.next == progress.own != NO_BLOCK
        if mine:
            progress.own = self._after(result.next)
        values = tuple(self._blocks[result.next].tolist()) if mine else ()
        progress.sent = progress.sent.but(round=result.round + 1, next=progress.own, values=values)
