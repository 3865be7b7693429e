"""Small helpers around TCP sockets: listen, connect, and read an exact number of bytes."""

from __future__ import annotations

import contextlib
import socket

from sparsewire.errors import Error
from sparsewire.lifetime import disown_in_child
from sparsewire.options import Address


def close_in_child(connection: socket.socket) -> socket.socket:
    """Have forked children close their copies of a socket, of which the other end learns nothing.

    Returns the socket.
    """
    return disown_in_child(connection, "close")


class CutShort(ConnectionResetError):
    """The connection ended in the middle of a message; `data` is what came of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__("the other end closed the connection")
        self.data = data


def bind(host: str, port: int) -> socket.socket:
    """A non-blocking listening socket on the first address of `host` that is local."""
    reason: OSError | None = None
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Error(f"cannot listen on {host}: {error}") from None
    for family, kind, *_, target in candidates:
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(target)
            listener.listen(socket.SOMAXCONN)
            listener.setblocking(False)
            return close_in_child(listener)
        except OSError as error:
            reason = error
            listener.close()
    raise Error(f"cannot listen on {Address(host, port)}: {reason}") from reason


def local_end(connection: socket.socket) -> Address:
    return Address(*connection.getsockname()[:2])


def connect(address: Address, timeout: float) -> socket.socket:
    """A blocking connection whose every step may take `timeout` seconds; raises OSError."""
    connection = socket.create_connection(address, timeout)
    # Dialling a free local port can meet itself: TCP's simultaneous open.
    if connection.getsockname() == connection.getpeername():
        connection.close()
        raise ConnectionRefusedError(f"nobody listens at {address}")
    return close_in_child(connection)


def prepare(connection: socket.socket) -> None:
    """Make a connection fit to carry collectives: no delays, and a fair share of the link."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return
    # Every rank's link carries a connection to each peer. BBR finds their shares slowly, so links
    # idle in short collectives; what the kernel offers instead shares at once.
    if connection.getsockopt(socket.IPPROTO_TCP, option, 16).rstrip(b"\0") == b"bbr":
        for algorithm in (b"cubic", b"reno"):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, option, algorithm)
                return


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes and not one more; raises CutShort where the connection ends before."""
    data = bytearray()
    while len(data) < size:
        part = b""
        with contextlib.suppress(ConnectionResetError):
            part = connection.recv(size - len(data))
        if not part:
            raise CutShort(bytes(data))
        data += part
    return bytes(data)
