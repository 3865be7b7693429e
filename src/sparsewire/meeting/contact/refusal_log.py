"""Logs whom a listener turns away, and why; of a flood only how many there were."""

from __future__ import annotations

import logging
import time
from collections import Counter

from sparsewire.meeting.contact.handshake import Reason, Refused

_log = logging.getLogger(__name__)

_AT_ONCE = 10
_PERIOD_S = 60.0


class RefusalLog:
    """Logs a limited number of warnings of each kind a minute, so that no kind hides the others."""

    def __init__(self) -> None:
        self._said: Counter[str] = Counter()
        self._renews = 0.0

    def note(self, kind: str, text: str) -> None:
        """Warn, unless there were many of that kind."""
        self.look()
        self._said[kind] += 1
        if self._said[kind] <= _AT_ONCE:
            _log.warning("%s", text)

    def look(self) -> None:
        """Say how many were left out, once a minute."""
        if (now := time.monotonic()) < self._renews:
            return
        for kind, count in self._said.items():
            if count > _AT_ONCE:
                _log.warning("%d more connections ended so: %s", count - _AT_ONCE, kind)
        self._said.clear()
        self._renews = now + _PERIOD_S


def kind_of(error: Exception) -> str:
    return f"refused, {error.reason.name}" if isinstance(error, Refused) else "no handshake"


def worded(error: Exception, address: str) -> str:
    """A log line about a connection from `address` that ended with `error`."""
    if not isinstance(error, Refused):
        return f"dropped a connection from {address}: {error}"
    who = f"{error.hello.caller if error.hello else 'somebody'} at {address}"
    if error.reason is Reason.WRONG_PROOF:
        return f"{who} has another SPARSEWIRE_SECRET, or none: set the same everywhere"
    return f"{who} is turned away{error.detail}, and told: {error}"
