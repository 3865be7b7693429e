"""Which local address a rank listens on: named by the user, or the one that reaches the others."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping

_SCOPE_LINK = 253


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
    from pyroute2 import IPRoute  # Only here: it takes as long to import as all else together.

    available = {interface: index for index, interface in socket.if_nameindex()}
    if name not in available:
        raise ValueError(
            f"{variable}={name}: no such network interface; there are {', '.join(available)}"
        )
    with IPRoute() as route:
        addresses = list(route.get_addr(index=available[name]))
    for family in (socket.AF_INET, socket.AF_INET6):
        for one in addresses:
            # A link-local address means nothing without an interface that differs on every host.
            is_local = family == socket.AF_INET6 and one["scope"] == _SCOPE_LINK
            if one["family"] == family and not is_local:
                # That of the other end is IFA_ADDRESS on links from point to point.
                return str(one.get("IFA_LOCAL") or one.get("IFA_ADDRESS"))
    raise ValueError(f"{variable}={name}: the interface has no IP address")


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
