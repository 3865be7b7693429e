"""Keeps the arrays of operations that nobody waits for any more, until the engine has let go."""

from __future__ import annotations

import contextlib
from collections import deque

from sparsewire._core import Operation


class AbandonedMemory:
    """Memory that operations in flight still read and write, though their handles are gone."""

    def __init__(self) -> None:
        self._held: deque[tuple[Operation, object]] = deque()

    def hold(self, operation: Operation, memory: object) -> None:
        """Keep `memory` alive until `operation` has ended, and `release` is called after that."""
        self._held.append((operation, memory))

    def release(self) -> None:
        """Let go of the memory of operations that have ended."""
        # One step at a time is safe against `__del__`, which adds from any thread at any moment.
        with contextlib.suppress(IndexError):
            for _ in range(len(self._held)):
                held = self._held.popleft()
                if not held[0].done():
                    self._held.append(held)
