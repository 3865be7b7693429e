"""Runs callbacks of operations that ended, on threads of their own that grow with need."""

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
_SIGNAL_INTERVAL_S = 0.2

Callback = Callable[[], None]


def wait(operation: Operation, timeout: float = math.inf) -> bool:
    """Block until `operation` has ended, or for `timeout` seconds; True if it has ended.

    Waits in slices, because Python handles Ctrl-C only between two calls into the engine.
    """
    deadline = time.monotonic() + timeout
    while not operation.wait(max(0.0, min(_SIGNAL_INTERVAL_S, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


class CallbackPool:
    """Threads that wait in the engine for ended operations, and run what was attached to them.

    One thread always stays free to take the next callback, so a callback may itself wait for
    another collective. The threads are daemons, start with the first use and end with the engine.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._callbacks: dict[int, list[Callback]] = {}
        self._idle = 0

    def watch(self, operation: Operation, callback: Callback) -> None:
        """Run `callback` once `operation` has ended, at once if it has."""
        with self._lock:
            self._callbacks.setdefault(operation.seq, []).append(callback)
            if self._idle == 0:
                self._start_thread()
        self._core.watch(operation)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="sparsewire-callbacks", daemon=True)
        # Python starts no thread any more while it exits; the threads that are there go on.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._idle += 1

    def _run(self) -> None:
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
        except Exception:
            _log.exception("a callback of a collective raised")
