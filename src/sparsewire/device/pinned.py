"""Pinned host memory that is used again: making it takes longer than most copies, so a pool does.

The pool is bounded. Who asks for more than is left waits until something comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from sparsewire.device.accelerator import Event

LIMIT_BYTES = 256 << 20
_SMALLEST_BYTES = 64 << 10


class PinnedPool:
    """Buffers of pinned memory, `limit` bytes together; a larger one only while it is the only."""

    def __init__(self, allocate: Callable[[int], torch.Tensor], limit: int = LIMIT_BYTES) -> None:
        self._allocate = allocate
        self._limit = limit
        self._changed = threading.Condition()
        self._free: list[tuple[torch.Tensor, Event | None]] = []
        self._lent = 0

    @property
    def lent_bytes(self) -> int:
        """What was taken and not given back."""
        return self._lent

    @property
    def kept_bytes(self) -> int:
        """What waits here to be taken again."""
        return sum(buffer.numel() for buffer, _ in self._free)

    def take(self, nbytes: int) -> torch.Tensor:
        """Memory of at least `nbytes`, uint8; blocks while too much is lent."""
        size = _size_class(nbytes)
        with self._changed:
            self._changed.wait_for(lambda: self._lent == 0 or self._has_room(size))
            self._lent += size
            found = self._take_free(size)
        if found is None:
            return self._make(size)
        buffer, event = found
        if event is not None:
            event.synchronize()
        return buffer

    def give_back(self, buffer: torch.Tensor, after: Event | None = None) -> None:
        """Let others have the buffer, once the device has come to `after`."""
        with self._changed:
            self._lent -= buffer.numel()
            if self._lent + self.kept_bytes + buffer.numel() <= self._limit:
                self._free.append((buffer, after))
            elif after is not None:
                # Its memory must not go before the device is done with it.
                after.synchronize()
            self._changed.notify_all()

    def _make(self, size: int) -> torch.Tensor:
        try:
            return self._allocate(size)
        except BaseException:
            with self._changed:
                self._lent -= size
                self._changed.notify_all()
            raise

    def _has_room(self, size: int) -> bool:
        return self._lent + size <= self._limit

    def _take_free(self, size: int) -> tuple[torch.Tensor, Event | None] | None:
        """A kept buffer of this size; without one, make room for a new one."""
        for place, (buffer, _) in enumerate(self._free):
            if buffer.numel() == size:
                return self._free.pop(place)
        while self._free and self._lent + self.kept_bytes > self._limit:
            buffer, event = self._free.pop(0)
            if event is not None:
                event.synchronize()
            del buffer
        return None


def _size_class(nbytes: int) -> int:
    """Few sizes, so that buffers fit again: a power of two."""
    return max(_SMALLEST_BYTES, 1 << max(0, nbytes - 1).bit_length())
