"""Says in an aggregator's log what its datagrams suffer on this host: a receive buffer that is too
small, datagrams that find no room, errors of the sockets."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Mapping

_log = logging.getLogger(__name__)

BUFFER_WANTED = 4 << 20
"""Bytes, as the engine asks for."""
_BETWEEN_S = 60.0
_ADVICE = {
    errno.EMSGSIZE: "the MTU of a path has shrunk: restore it, or set SPARSEWIRE_DATAGRAM lower",
    errno.EPERM: "a firewall on this host refuses them",
    errno.ENETUNREACH: "a route is missing",
    errno.EHOSTUNREACH: "a route is missing, or a host is down",
}
_LOST = {
    "datagrams_overrun": "found no room in the receive buffer (the sysctl net.core.rmem_max)",
    "datagrams_dropped": "were not sent, for want of room or because the system refused them",
}


class DatagramLog:
    """Looks at counters now and then, and warns of each trouble once a minute at most."""

    def __init__(self) -> None:
        self._granted = 0
        self._told: dict[str, int] = {}
        self._next: dict[str, float] = {}

    def look(self, stats: Mapping[str, int]) -> None:
        """Compare with what was told."""
        granted = stats.get("datagram_buffer", 0)
        if granted != self._granted and granted < BUFFER_WANTED:
            _log.warning(
                "the system grants a receive buffer of %d bytes, so bursts of datagrams get lost: "
                "set the sysctl net.core.rmem_max to %d",
                granted,
                BUFFER_WANTED,
            )
        if self._has_more("datagram_errors", stats):
            number = stats.get("datagram_last_error", 0)
            advice = _ADVICE.get(number, "look at the route and the firewall")
            _log.warning("datagrams do not leave: %s; %s", os.strerror(number), advice)
        for name, what in _LOST.items():
            if self._has_more(name, stats):
                _log.warning("%d datagrams so far %s", stats[name], what)
        self._granted = granted

    def _has_more(self, name: str, stats: Mapping[str, int]) -> bool:
        now, count = time.monotonic(), stats.get(name, 0)
        if count <= self._told.get(name, 0) or now < self._next.get(name, 0.0):
            return False
        self._told[name], self._next[name] = count, now + _BETWEEN_S
        return True
