"""Sockets: on which local address to listen, connecting, and reading just so many bytes.

Forked children close their copies of sockets, of which the other end learns nothing.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import secrets
import socket
from collections.abc import Mapping
from typing import NamedTuple

from sparsewire._core import interfaces
from sparsewire.errors import Error
from sparsewire.launcher import master
from sparsewire.lifetime import disown_in_child
from sparsewire.options import Address

_OTHER_DESCRIPTORS = 256
"""Descriptors that a program may have open beside its connections."""
_NAMELESS = "\0sparsewire-"
"""Begins a name that is no file, so that nothing is left of it; a network namespace has its own."""


class LocalAddress(NamedTuple):
    """A Unix socket that only processes of the same host, and of the same container, reach."""

    name: str

    def __str__(self) -> str:
        return "a socket of this host"


Target = Address | LocalAddress
"""The address of a listener."""


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
            return disown_in_child(listener, "close")
        except OSError as error:
            reason = error
            listener.close()
    raise Error(f"cannot listen on {Address(host, port)}: {reason}") from reason


def bind_local() -> tuple[socket.socket, LocalAddress] | None:
    """A non-blocking listening Unix socket; None where the system has none without a file."""
    address = LocalAddress(secrets.token_hex(16))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(_NAMELESS + address.name)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    return disown_in_child(listener, "close"), address


def local_end(connection: socket.socket) -> Address:
    return Address(*connection.getsockname()[:2])


def connect(address: Address, timeout: float) -> socket.socket:
    """A blocking connection whose every step may take `timeout` seconds; raises OSError."""
    connection = socket.create_connection(address, timeout)
    try:
        refuse_own_end(connection)
    except ConnectionRefusedError:
        connection.close()
        raise
    return disown_in_child(connection, "close")


def begin_connect(target: Target, source: str = "") -> socket.socket:
    """A non-blocking connection on its way, writable once it is there or has failed.

    It leaves from the local address `source`, if there is one. Raises OSError; BlockingIOError
    where another attempt may do.
    """
    if isinstance(target, LocalAddress):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: object = _NAMELESS + target.name
    else:
        family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        address = tuple(target)
    connection.setblocking(False)
    try:
        if source and isinstance(target, Address):
            connection.bind((source, 0))
        reason = connection.connect_ex(address)  # type: ignore[arg-type]
        if reason not in (0, errno.EINPROGRESS):
            raise OSError(reason, os.strerror(reason))
    except BaseException:
        connection.close()
        raise
    return disown_in_child(connection, "close")


def refuse_own_end(connection: socket.socket) -> None:
    """Dialling a free local port can meet itself: TCP's simultaneous open."""
    if connection.family != socket.AF_UNIX and connection.getsockname() == connection.getpeername():
        raise ConnectionRefusedError("nobody listens there")


def prepare(connection: socket.socket) -> None:
    """Make a connection fit to carry collectives: no delays, and a fair share of the link."""
    if connection.family == socket.AF_UNIX:
        return
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


def local_addresses(environment: Mapping[str, str]) -> list[str]:
    """The IP addresses to listen on, one for each interface that SPARSEWIRE_IFNAME names.

    Raises ValueError where a name is wrong. Without any hint this is the loopback address alone.
    The caller must then check that all ranks are on this host (see `host_identity`): a listener
    there is of no use to ranks elsewhere.
    """
    if names := _names(environment.get("SPARSEWIRE_IFNAME", "")):
        return [address_of_interface(name) for name in names]
    # Gloo sends each collective over one of its interfaces, so a list there asks for less.
    if names := _names(environment.get("GLOO_SOCKET_IFNAME", "")):
        return [address_of_interface(names[0], "GLOO_SOCKET_IFNAME")]
    if host := master(environment).host:
        return [address_towards(host)]
    return ["127.0.0.1"]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"interface {name} is listed twice: name each once")
    return names


def local_address(environment: Mapping[str, str]) -> str:
    """The first of `local_addresses`; raises like it."""
    return local_addresses(environment)[0]


def address_of_interface(name: str, variable: str = "SPARSEWIRE_IFNAME") -> str:
    """IPv4 address of interface `name`, else its IPv6 address."""
    available = {own: addresses for own, addresses, *_ in interfaces()}
    if name not in available:
        raise ValueError(
            f"{variable}={name}: no such network interface; there are {', '.join(available)}"
        )
    addresses = [ipaddress.ip_address(text) for text in available[name]]
    # A link-local address means nothing without an interface that differs on every host.
    usable = [each for each in addresses if each.version == 4 or not each.is_link_local]
    if not usable:
        raise ValueError(f"{variable}={name}: the interface has no IP address")
    return str(min(usable, key=lambda each: each.version))


def address_towards(host: str) -> str:
    """The local address from which packets to `host` leave."""
    reason: OSError | None = None
    for family, kind, *_, target in _resolve(host):
        with socket.socket(family, kind) as probe:
            try:
                # Connecting a datagram socket picks a route and sends nothing.
                probe.connect(target)
                return str(probe.getsockname()[0])
            except OSError as error:
                reason = error
    raise ValueError(f"no route to MASTER_ADDR={host} ({reason}): set SPARSEWIRE_IFNAME")


def is_loopback(address: str) -> bool:
    """Whether `address`, a numeric IP address, is only reachable from its own host."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def raise_descriptor_limit(needed: int) -> None:
    """Let this process have descriptors for `needed` connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + _OTHER_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def host_identity() -> str:
    """A string that two processes share only if they can reach each other over loopback."""
    network = ""
    # Containers share the boot id of their machine, but each has a loopback of its own.
    with contextlib.suppress(OSError):
        network = os.readlink("/proc/self/ns/net")
    return f"{socket.gethostname()} {machine_identity()} {network}"


def machine_identity() -> str:
    """A string that two processes share only if they share processors; "" where none is known."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""


def _resolve(host: str) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    try:
        return socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)  # type: ignore[return-value]
    except OSError as error:
        raise ValueError(f"MASTER_ADDR={host} cannot be resolved: {error}") from None
