"""The handle of one collective in flight, and what outlives it: the memory that it works on."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from sparsewire._core import Operation
from sparsewire.engine_threads import wait
from sparsewire.errors import Error


class Issuer(Protocol):
    """What issued the collective: a communicator."""

    def check_process(self) -> None: ...

    def not_ended(self, operation: Operation, timeout: float | None) -> Error: ...

    def failure_of(self, operation: Operation) -> Error | None: ...

    def watch(self, operation: Operation, callback: Callable[[], None]) -> None: ...

    def hold(self, operation: Operation, memory: object) -> None: ...


class Work:
    """One collective in flight. It keeps the arrays alive until the engine is done with them."""

    def __init__(
        self,
        issuer: Issuer,
        operation: Operation,
        result: Callable[[], Any],
        memory: object,
    ) -> None:
        self._issuer = issuer
        self._operation = operation
        self._result = result
        self._memory = memory
        self._delivering = threading.Lock()
        self._delivered: list[Any] = []

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the end and return the result; raises the typed error.

        Raises Timeout after `timeout` seconds; the collective is still in flight then. Raises
        ValueError for a timeout that is NaN.
        """
        self._issuer.check_process()
        limit = math.inf if timeout is None else timeout
        if not wait(self._operation, limit):
            raise self._issuer.not_ended(self._operation, timeout)
        if (error := self.exception()) is not None:
            raise error
        return self._deliver()

    def is_completed(self) -> bool:
        """Whether the collective has ended, well or not."""
        return self._operation.done()

    def exception(self) -> Error | None:
        """Why the collective failed; None if it did not, or has not ended."""
        return self._issuer.failure_of(self._operation)

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(self)` on a thread of the callback pool, once the collective has ended.

        It may wait for other collectives. Up to 64 callbacks run at once; further ones wait until
        one of them returns. What it raises is logged, SystemExit included. `close` waits for those
        that run, for 5 s.
        """

        def call() -> None:
            callback(self)

        self._issuer.watch(self._operation, call)

    def deliver_to(self, take: Callable[[Any], Any]) -> Work:
        """Have `wait` return what `take` makes, once, of the result. For glue to frameworks."""
        result = self._result
        self._result = lambda: take(result())
        return self

    def _deliver(self) -> Any:
        """Make the result, once."""
        with self._delivering:
            if not self._delivered:
                self._delivered.append(self._result())
            return self._delivered[0]

    def __del__(self) -> None:
        # Nobody waits any more, but the engine still reads and writes the arrays.
        if not self._operation.done():
            self._issuer.hold(self._operation, self._memory)


class AbandonedMemory:
    """Memory that operations in flight still read and write, though their handles are gone.

    So also where Ctrl-C comes after an operation was issued, and before anybody has its handle.
    """

    def __init__(self) -> None:
        self._held: deque[tuple[Operation, object]] = deque()
        self._issuing: dict[object, object] = {}

    def issue(
        self, start: Callable[[], Operation], memory: object, handle: Callable[[Operation], Work]
    ) -> Work:
        """Call `start`, and return the `handle` of its operation, which keeps `memory` then.

        What interrupts this leaves `memory` here for good: nobody can tell any more when the engine
        lets go of it. An Exception of `start` means that nothing was issued.
        """
        token = object()
        self._issuing[token] = memory
        try:
            operation = start()
        except Exception:
            del self._issuing[token]
            raise
        work = handle(operation)
        del self._issuing[token]
        return work

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
