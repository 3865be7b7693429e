"""A pool of pinned host memory, which is used again, since making it takes longer than most copies.

The pool is bounded. A borrower that asks for more than is left waits until memory comes back,
unless it has borrowed nothing: so no two borrowers ever wait for each other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from sparsewire.device.accelerator import Event

LIMIT_BYTES = 256 << 20
_SMALLEST_BYTES = 64 << 10


class Borrower(Protocol):
    """A user of a pool's memory, whose transfers never wait for its later transfers."""

    def end(self) -> Event | None:
        """The end of the device's present work for the borrower; None if the device fails."""


class PinnedPool:
    """Buffers of pinned memory, `limit` bytes in all, and beyond that one loan per borrower."""

    def __init__(self, allocate: Callable[[int], torch.Tensor], limit: int = LIMIT_BYTES) -> None:
        self._allocate = allocate
        self._limit = limit
        self._changed = threading.Condition()
        self._free: list[tuple[torch.Tensor, Event | None]] = []
        self._lent: Counter[Loan] = Counter()

    @property
    def lent_bytes(self) -> int:
        """Bytes that were taken and not given back."""
        return self._lent.total()

    @property
    def kept_bytes(self) -> int:
        """Bytes that wait here to be taken again."""
        return sum(buffer.numel() for buffer, _ in self._free)

    def take(self, nbytes: int, loan: Loan) -> torch.Tensor:
        """Memory of at least `nbytes` bytes, uint8. If the borrower has another loan, this blocks
        while too much is lent.
        """
        size = _size_class(nbytes)
        with self._changed:
            self._changed.wait_for(lambda: self._is_only_loan(loan) or self._has_room(size))
            self._lent[loan] += size
            found = self._take_free(size)
            surplus = [] if found else self._take_surplus()
        try:
            _await(event for _, event in [*surplus, *([found] if found else [])])
            del surplus
            return found[0] if found else self._allocate(size)
        except BaseException:
            self.give_back([], loan, size)
            raise

    def give_back(
        self, buffers: Iterable[torch.Tensor], loan: Loan, nbytes: int, after: Event | None = None
    ) -> None:
        """Let others have the buffers of a loan, once the device has come to `after`."""
        with self._changed:
            self._lent[loan] -= nbytes
            self._lent += Counter()  # Removes loans without memory.
            self._free += [(buffer, after) for buffer in buffers]
            surplus = self._take_surplus()
            self._changed.notify_all()
        # Memory must not be freed before the device is done with it.
        _await(event for _, event in surplus)

    def _is_only_loan(self, loan: Loan) -> bool:
        return all(each is loan or each.borrower is not loan.borrower for each in self._lent)

    def _has_room(self, size: int) -> bool:
        return self.lent_bytes + size <= self._limit

    def _take_free(self, size: int) -> tuple[torch.Tensor, Event | None] | None:
        """A kept buffer of this size, if there is one."""
        for place, (buffer, _) in enumerate(self._free):
            if buffer.numel() == size:
                return self._free.pop(place)
        return None

    def _take_surplus(self) -> list[tuple[torch.Tensor, Event | None]]:
        """Take out the oldest kept buffers, until the rest is within the limit."""
        surplus = []
        while self._free and self.lent_bytes + self.kept_bytes > self._limit:
            surplus.append(self._free.pop(0))
        return surplus


class Loan:
    """The buffers of one transfer, which go back together, also if the transfer fails.

    A `with` that raises, or does not `keep` the loan, ends the loan once the device has done the
    borrower's work up to then.
    """

    def __init__(self, pool: PinnedPool, borrower: Borrower) -> None:
        self.borrower = borrower
        self._pool = pool
        self._buffers: list[torch.Tensor] = []
        self._is_kept = False

    def take(self, nbytes: int) -> torch.Tensor:
        """Memory of at least `nbytes` bytes, uint8; blocks only if the borrower has other loans."""
        buffer = self._pool.take(nbytes, self)
        self._buffers.append(buffer)
        return buffer

    def take_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory with the dtype and shape of `tensor`; blocks like `take`."""
        nbytes = tensor.numel() * tensor.element_size()
        return self.take(nbytes)[:nbytes].view(tensor.dtype).view(tensor.shape)

    def keep(self) -> None:
        """Have the loan outlive the `with`; the caller must end it later."""
        self._is_kept = True

    def end(self, after: Event | None = None) -> None:
        """Give all buffers back, for use once the device has come to `after`. Idempotent."""
        buffers, self._buffers = self._buffers, []
        if buffers:
            self._pool.give_back(buffers, self, sum(map(torch.Tensor.numel, buffers)), after)

    def __enter__(self) -> Loan:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None or not self._is_kept:
            self.end(self.borrower.end())


def _await(events: Iterable[Event | None]) -> None:
    for event in events:
        if event is not None:
            event.synchronize()


def _size_class(nbytes: int) -> int:
    """The size to allocate. Sizes are few, so that buffers fit again, and at most 1/8 too large."""
    step = max(_SMALLEST_BYTES, 1 << max(0, nbytes - 1).bit_length() >> 4)
    return max(1, -(-nbytes // step)) * step
