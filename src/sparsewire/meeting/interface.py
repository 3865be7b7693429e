"""Which local address a rank listens on: named by the user, or the one that reaches the others."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping

_SIOCGIFADDR = 0x8915
_IF_INET6 = "/proc/net/if_inet6"
_SCOPE_LINK = 0x20


def local_address(environment: Mapping[str, str]) -> str:
    """Choose the IP address to listen on; raises ValueError where an interface name is wrong.

    Without any hint this is the loopback address. The caller must then check that all ranks are
    on this host (see `host_identity`): a listener there is of no use to ranks elsewhere.
    """
    for variable in ("SPARSEWIRE_IFNAME", "GLOO_SOCKET_IFNAME"):
        # Gloo allows a list of interfaces; a mesh uses one, the first.
        name = environment.get(variable, "").split(",")[0].strip()
        if name:
            return address_of_interface(name, variable)
    if master := environment.get("MASTER_ADDR"):
        return address_towards(master)
    return "127.0.0.1"


def address_of_interface(name: str, variable: str = "SPARSEWIRE_IFNAME") -> str:
    """IPv4 address of interface `name`, else its IPv6 address."""
    available = [interface for _, interface in socket.if_nameindex()]
    if name not in available:
        raise ValueError(
            f"{variable}={name}: no such network interface; there are {', '.join(available)}"
        )
    address = _ipv4_address(name) or _ipv6_address(name)
    if address is None:
        raise ValueError(f"{variable}={name}: the interface has no IP address")
    return address


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


def host_identity() -> str:
    """A string that two processes share only if they can reach each other over loopback."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        # Containers share the boot id of their host, but each has a loopback of its own.
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        boot = network = ""
    return f"{socket.gethostname()} {boot} {network}"


def _resolve(host: str) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    try:
        return socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)  # type: ignore[return-value]
    except OSError as error:
        raise ValueError(f"MASTER_ADDR={host} cannot be resolved: {error}") from None


def _ipv4_address(name: str) -> str | None:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _ipv6_address(name: str) -> str | None:
    try:
        with open(_IF_INET6) as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    for address, _, _, scope, _, interface in rows:
        # A link-local address means nothing without an interface that differs on every host.
        if interface == name and int(scope, 16) != _SCOPE_LINK:
            return str(ipaddress.IPv6Address(int(address, 16)))
    return None
