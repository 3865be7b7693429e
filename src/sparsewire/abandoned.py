"""Keeps the arrays of operations that nobody waits for any more, until the engine has let go.

So also where Ctrl-C comes after an operation was issued, and before anybody has its handle.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from sparsewire._core import Operation


class AbandonedMemory:
    """Memory that operations in flight still read and write, though their handles are gone."""

    def __init__(self) -> None:
        self._held: deque[tuple[Operation, object]] = deque()
        self._issuing: dict[object, object] = {}

    def issue(self, start: Callable[[], Operation], memory: object) -> tuple[Operation, object]:
        """Call `start`, and return its operation with a token for `issued`.

        What interrupts this, or comes before `issued`, leaves `memory` here for good: nobody can
        tell any more when the engine lets go of it. An Exception of `start` means that nothing
        was issued.
        """
        token = object()
        self._issuing[token] = memory
        try:
            return start(), token
        except Exception:
            self.issued(token)
            raise

    def issued(self, token: object) -> None:
        """Somebody else keeps the memory now."""
        del self._issuing[token]

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
