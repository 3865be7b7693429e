"""Logs which ranks have fallen silent, and which are back, as long as a communicator is open."""

from __future__ import annotations

import logging
import threading

from sparsewire._core import Communicator as Core

_log = logging.getLogger(__name__)

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
