"""Threads that wait in the engine: for operations that ended, and for peers that fall silent."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable

from sparsewire._core import Communicator as Core
from sparsewire._core import Operation

_log = logging.getLogger(__name__)

IDLE_MAX = 2
THREADS_MAX = 64
_SIGNAL_INTERVAL_S = 0.2
_JOIN_PATIENCE_S = 5.0

Callback = Callable[[], None]


def wait(operation: Operation, timeout: float = math.inf) -> bool:
    """Block until `operation` has ended, or for `timeout` seconds; True if it has ended.

    Waits in slices, because Python handles Ctrl-C only between two calls into the engine.
    """
    if math.isnan(timeout):
        raise ValueError("timeout must be a number of seconds, not nan")
    deadline = time.monotonic() + timeout
    while not operation.wait(max(0.0, min(_SIGNAL_INTERVAL_S, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


class CallbackPool:
    """Threads that wait in the engine for ended operations, and run what was attached to them.

    One thread stays free to take the next callback, so a callback may itself wait for another
    collective; but there are THREADS_MAX at most, and while all of them are in callbacks, further
    ones wait. The threads are daemons, start with the first use and end with the engine.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._callbacks: dict[int, list[Callback]] = {}
        self._threads: set[threading.Thread] = set()
        self._idle = 0

    def watch(self, operation: Operation, callback: Callback) -> None:
        """Run `callback` once `operation` has ended, at once if it has."""
        with self._lock:
            self._callbacks.setdefault(operation.seq, []).append(callback)
            if self._idle == 0:
                self._start_thread()
        self._core.watch(operation)

    def join(self) -> None:
        """Wait for the callbacks that still run, once the engine is closed; 5 s at most."""
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
        # Python starts no thread any more while it exits; the threads that are there go on.
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
            # The next operation may be long in coming: let go of this one's arrays meanwhile.
            del operation, callbacks
            with self._lock:
                if self._idle >= IDLE_MAX:
                    return
                self._idle += 1
        self._finish()

    def _finish(self) -> None:
        """The engine is closed, so every operation has ended: run what is left."""
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
"""Name, number and age in seconds of the oldest operation in flight."""


class NoticeLog(threading.Thread):
    """Waits in the engine for its notices; ends when the engine is closed."""

    def __init__(self, core: Core, peer_timeout: float) -> None:
        # A daemon, so that a program that forgets to close its communicator still ends.
        super().__init__(name="sparsewire-notices", daemon=True)
        self._core = core
        self._peer_timeout = peer_timeout
        self.first_operation = 0

    def run(self) -> None:
        while (notice := self._core.next_notice()) is not None:
            peer, seconds, is_over, oldest = notice
            waiting = self._describe(oldest)
            if is_over:
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
