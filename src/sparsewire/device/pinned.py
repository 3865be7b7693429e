"""Pinned host memory that is used again: making it takes longer than most copies, so a pool does.

The pool is bounded. Who asks for more than is left waits until something comes back, unless it has
nothing: so no two borrowers ever wait for each other.
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
    """Who uses memory of a pool, in transfers that do not wait for later ones of its own."""

    def end(self) -> Event | None:
        """The end of all that the device has to do for it now; None: the device does not say."""


class PinnedPool:
    """Buffers of pinned memory, `limit` bytes together, and beyond it a loan for each borrower."""

    def __init__(self, allocate: Callable[[int], torch.Tensor], limit: int = LIMIT_BYTES) -> None:
        self._allocate = allocate
        self._limit = limit
        self._changed = threading.Condition()
        self._free: list[tuple[torch.Tensor, Event | None]] = []
        self._lent: Counter[Loan] = Counter()

    @property
    def lent_bytes(self) -> int:
        """What was taken and not given back."""
        return self._lent.total()

    @property
    def kept_bytes(self) -> int:
        """What waits here to be taken again."""
        return sum(buffer.numel() for buffer, _ in self._free)

    def take(self, nbytes: int, loan: Loan) -> torch.Tensor:
        """Memory of at least `nbytes`, uint8; blocks while too much is lent, also by `loan`s of
        the same borrower.
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
            self._lent += Counter()  # Without those that have nothing.
            self._free += [(buffer, after) for buffer in buffers]
            surplus = self._take_surplus()
            self._changed.notify_all()
        # Memory must not go before the device is done with it.
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
        """Kept buffers, the oldest first, without which the rest is below the limit."""
        surplus = []
        while self._free and self.lent_bytes + self.kept_bytes > self._limit:
            surplus.append(self._free.pop(0))
        return surplus


class Loan:
    """The buffers of one transfer, which go back together, and however it ends.

    At the end of a `with` that raised, or did not `keep` them, it ends once the device is past
    what the borrower has to do until then.
    """

    def __init__(self, pool: PinnedPool, borrower: Borrower) -> None:
        self.borrower = borrower
        self._pool = pool
        self._buffers: list[torch.Tensor] = []
        self._is_kept = False

    def take(self, nbytes: int) -> torch.Tensor:
        """Memory of at least `nbytes`, uint8; blocks for other loans of the borrower at most."""
        buffer = self._pool.take(nbytes, self)
        self._buffers.append(buffer)
        return buffer

    def take_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same with the dtype and shape of `tensor`."""
        nbytes = tensor.numel() * tensor.element_size()
        return self.take(nbytes)[:nbytes].view(tensor.dtype).view(tensor.shape)

    def keep(self) -> None:
        """Have the loan outlive the `with`; somebody ends it later."""
        self._is_kept = True

    def end(self, after: Event | None = None) -> None:
        """Give all back, for when the device has come to `after`. Idempotent."""
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
    """Few sizes, so that buffers fit again: eighths of a power of two, at most 1/8 too much."""
    step = max(_SMALLEST_BYTES, 1 << max(0, nbytes - 1).bit_length() >> 4)
    return max(1, -(-nbytes // step)) * step
