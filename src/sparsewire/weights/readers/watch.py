"""A thread that hands each new version to a callback."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

from sparsewire.errors import Timeout
from sparsewire.weights.readers.staged import Staged
from sparsewire.weights.sync.loop import LoopThread

_log = logging.getLogger(__name__)

_WATCH_S = 3600.0
_PAUSE_S = 1.0

Staging = Callable[[int | None, int | None, float], Coroutine[Any, Any, Staged]]
"""Stages a version, or one above a number, within some seconds."""


class Watch:
    """Waits for versions until it is stopped."""

    def __init__(
        self, loop: LoopThread, staging: Staging, callback: Callable[[Staged], object]
    ) -> None:
        """`Receiver.watch` makes it."""
        self._loop = loop
        self._staging = staging
        self._callback = callback
        self._stopping = threading.Event()
        self._waiting: Future[Staged] | None = None
        self._thread = threading.Thread(target=self._run, name="weights watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        above: int | None = None
        while self._loop.is_running and not self._stopping.is_set():
            try:
                self._waiting = self._loop.begin(self._staging(None, above, _WATCH_S))
                if self._stopping.is_set():
                    self._waiting.cancel()  # `stop` may have looked for it before it was there.
                staged = self._waiting.result()
            except CancelledError:
                return
            except Exception as error:  # What came may raise anything, and the next may be sound.
                if not isinstance(error, Timeout):
                    _log.warning("no new version of the weights: %s", error)
                self._stopping.wait(_PAUSE_S)
                continue
            above = staged.version
            try:
                self._callback(staged)
            except Exception:
                _log.exception("the callback failed for version %d of the weights", above)

    def stop(self) -> None:
        """End it; a callback that runs is waited for."""
        self._stopping.set()
        if self._waiting:
            self._waiting.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join()
