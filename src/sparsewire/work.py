"""Collectives in flight: their handles, their memory, and threads that wait in the engine."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from sparsewire._core import Communicator as Core
from sparsewire._core import Operation
from sparsewire.errors import Error

_log = logging.getLogger(__name__)

IDLE_MAX = 2
THREADS_MAX = 64
_SIGNAL_INTERVAL_S = 0.2
_JOIN_PATIENCE_S = 5.0

Callback = Callable[[], None]


class Issuer(Protocol):
    """The issuer of a collective: the engine of a communicator."""

    def check_process(self) -> None: ...

    def wait_for(self, operation: Operation, timeout: float) -> bool: ...

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
        """Block until the collective has ended, and return its result.

        Raises the collective's error if it failed. Raises Timeout after `timeout` seconds; the
        collective is still in flight then. Raises ValueError for a timeout that is NaN.
        """
        self._issuer.check_process()
        limit = math.inf if timeout is None else timeout
        if not self._wait(limit):
            raise self._issuer.not_ended(self._operation, timeout)
        if (error := self.exception()) is not None:
            raise error
        return self._deliver()

    def _wait(self, timeout: float) -> bool:
        """Wait in slices, because Python handles Ctrl-C only between two calls into the engine."""
        if math.isnan(timeout):
            raise ValueError("timeout must be a number of seconds, not nan")
        deadline = time.monotonic() + timeout
        left = timeout
        while not self._issuer.wait_for(self._operation, min(_SIGNAL_INTERVAL_S, left)):
            left = max(0.0, deadline - time.monotonic())
            if left == 0:
                return False
        return True

    def is_completed(self) -> bool:
        """Whether the collective has ended, with success or an error."""
        return self._operation.done()

    def exception(self) -> Error | None:
        """The error of a collective that failed; None if it succeeded or has not ended."""
        return self._issuer.failure_of(self._operation)

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(self)` on a thread of the callback pool, once the collective has ended.

        A callback may wait for other collectives. Up to 64 callbacks run at once; further ones wait
        until one of them returns. Exceptions of callbacks are logged, SystemExit included. `close`
        waits at most 5 s for running callbacks.
        """

        def call() -> None:
            callback(self)

        self._issuer.watch(self._operation, call)

    def deliver_to(self, take: Callable[[Any], Any]) -> Work:
        """Have `wait` return `take(result)`; `take` is called once. For glue to frameworks."""
        result = self._result
        self._result = lambda: take(result())
        return self

    def _deliver(self) -> Any:
        """The result, which the first call makes."""
        with self._delivering:
            if not self._delivered:
                self._delivered.append(self._result())
            return self._delivered[0]

    def __del__(self) -> None:
        # Nobody can wait any more, but the engine still reads and writes the arrays.
        if not self._operation.done():
            self._issuer.hold(self._operation, self._memory)


class AbandonedMemory:
    """Memory that operations in flight still read and write, though their handles are gone.

    A handle is also gone if Ctrl-C comes after the operation was issued, before the caller has it.
    """

    def __init__(self) -> None:
        self._held: deque[tuple[Operation, object]] = deque()
        self._issuing: dict[object, object] = {}

    def issue(
        self, start: Callable[[], Operation], memory: object, handle: Callable[[Operation], Work]
    ) -> Work:
        """Call `start`, and return the `handle` of its operation, which then keeps `memory`.

        If this is interrupted, `memory` stays here for good: nobody can tell any more when the
        engine lets go of it. An Exception of `start` means that nothing was issued.
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
        """Keep `memory` alive until `release` is called after the end of `operation`."""
        self._held.append((operation, memory))

    def release(self) -> None:
        """Let go of the memory of operations that have ended."""
        if not self._held:
            return
        # One step at a time is safe against `__del__`, which adds from any thread at any moment.
        with contextlib.suppress(IndexError):
            for _ in range(len(self._held)):
                held = self._held.popleft()
                if not held[0].done():
                    self._held.append(held)


class CallbackPool:
    """Threads that wait in the engine for ended operations, and run their callbacks.

    One thread stays free to take the next callback, so a callback may itself wait for another
    collective. There are at most THREADS_MAX threads; while all of them run callbacks, further
    callbacks wait. The threads are daemons, start with the first use and end with the engine.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._callbacks: dict[int, list[Callback]] = {}
        self._threads: set[threading.Thread] = set()
        self._idle = 0

    def watch(self, operation: Operation, callback: Callback) -> None:
        """Run `callback` once `operation` has ended; at once if it has ended already."""
        with self._lock:
            self._callbacks.setdefault(operation.seq, []).append(callback)
            if self._idle == 0:
                self._start_thread()
        self._core.watch(operation)

    def join(self) -> None:
        """Wait at most 5 s for callbacks that still run after the engine was closed."""
        deadline = time.monotonic() + _JOIN_PATIENCE_S
        with self._lock:
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.warning("a callback of a collective still runs after close")

    def _start_thread(self) -> None:
        if len(self._threads) >= THREADS_MAX:
            return
        thread = threading.Thread(target=self._run, name="sparsewire-callbacks", daemon=True)
        # Python starts no more threads while it exits; existing threads go on.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._threads.add(thread)
            self._idle += 1

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _serve(self) -> None:
        while (operation := self._core.next_completed()) is not None:
            with self._lock:
                # Of several callbacks of one operation, the first report of its end runs all.
                callbacks = self._callbacks.pop(operation.seq, [])
                self._idle -= 1
                if self._idle == 0:
                    self._start_thread()
            _call(callbacks)
            # The next operation may end much later: let go of this one's arrays meanwhile.
            del operation, callbacks
            with self._lock:
                if self._idle >= IDLE_MAX:
                    return
                self._idle += 1
        self._finish()

    def _finish(self) -> None:
        """Run all callbacks that are left: the engine is closed, so every operation has ended."""
        with self._lock:
            self._idle -= 1
            left, self._callbacks = self._callbacks, {}
        for waiting in left.values():
            _call(waiting)


def _call(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        try:
            callback()
        except BaseException:  # Not even sys.exit() may keep others from being called.
            _log.exception("a callback of a collective raised")


Current = tuple[str, int, float]
"""The name, the number and the age in seconds of the oldest operation in flight."""


class NoticeLog(threading.Thread):
    """Waits in the engine for its notices, and logs them; ends when the engine is closed."""

    def __init__(self, core: Core, peer_timeout: float) -> None:
        # A daemon, so that a program that forgets to close its communicator still ends.
        super().__init__(name="sparsewire-notices", daemon=True)
        self._core = core
        self._peer_timeout = peer_timeout
        self.first_operation = 0

    def run(self) -> None:
        while (notice := self._core.next_notice()) is not None:
            trouble, peer, seconds, is_over, oldest = notice
            waiting = self._describe(oldest)
            if trouble:
                _log.warning("%s", trouble)
            elif is_over:
                _log.warning("%s is back; %s", peer, waiting)
            else:
                _log.warning(
                    "no sign of life from %s for %.1f s; %s. It is lost after %g s "
                    "(SPARSEWIRE_PEER_TIMEOUT)",
                    peer,
                    seconds,
                    waiting,
                    self._peer_timeout,
                )

    def _describe(self, oldest: Current | None) -> str:
        if oldest is None or oldest[1] < self.first_operation:
            return "no operation is in flight"
        op, seq, age = oldest
        return f"{op} (operation {seq - self.first_operation}) has waited for {age:.1f} s"
