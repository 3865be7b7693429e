"""How much of a message a connection may have on its way, so that readers share a sender's link.

Buffers of networks are long. The connection that begins first fills them, and one beside it crawls
until that is done; what the slow one's reader passes on comes late at all below. So a connection
holds what its path takes in two round trips, and a little for this end's own pauses.
"""

from __future__ import annotations

import contextlib
import socket
import struct

_LEAST_BYTES = 64 << 10
_PAUSE_S = 0.01
# The shortest round trip in microseconds, and the bytes that came over in a second: struct tcp_info
# of Linux (include/uapi/linux/tcp.h).
_INFO = struct.Struct("=148xI8xQ")
# Which buffers the system leaves as somebody set them; from Linux 5.14 on (man 7 socket).
_SO_BUF_LOCK = 72


class SendWindow:
    """Sets the room for what a socket sends. It only grows.

    Where the path needs more than a process may set, the system sizes it, as it does elsewhere than
    on Linux.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.size: int | None = None
        """Bytes; None: the system sizes it."""
        with contextlib.suppress(OSError):
            self._free()  # What cannot be undone is not done.
            self._set(_LEAST_BYTES)

    def adapt(self) -> None:
        """Follow what the path was found to take, after something was sent."""
        if self.size is None:
            return
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        if len(info) < _INFO.size:
            return
        round_trip_us, rate = _INFO.unpack(info)
        size = size_for(rate, round_trip_us * 1e-6)
        if size > self.size:
            self._set(size)

    def _set(self, size: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        self.size = size
        # Linux sets twice as much, for what it needs beside the bytes.
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 2 * size:
            self._free()

    def _free(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)
        self.size = None


def size_for(rate: float, round_trip_s: float) -> int:
    """Bytes for a path that takes `rate` bytes a second, and whose round trip takes so long."""
    return max(_LEAST_BYTES, int(rate * (2 * round_trip_s + _PAUSE_S)))
