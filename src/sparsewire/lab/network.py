"""Wires the lab: one bridge as the switch, and a shaped veth pair from it to every host."""

import contextlib
from collections.abc import Sequence

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from sparsewire.lab.link import shape
from sparsewire.lab.names import INTERFACE
from sparsewire.lab.namespace import Namespace

_BRIDGE = "switch"
_PREFIX_IPV4 = 24
_PREFIX_IPV6 = 64
_IFA_F_NODAD = 0x02


def build(
    switch: Namespace,
    hosts: Sequence[Namespace],
    addresses: Sequence[str],
    bits_per_second: int | None,
    mtu: int,
) -> None:
    """Connect `hosts` to a bridge in `switch`; every link is limited to `bits_per_second`.

    Raises OSError where the kernel refuses.
    """
    try:
        switch.call(_build_switch, [host.descriptor for host in hosts], bits_per_second, mtu)
        for host, address in zip(hosts, addresses, strict=True):
            host.call(_build_host, address, bits_per_second)
    except NetlinkError as error:
        raise OSError(error.code, f"cannot build the network: {error}") from error


def _build_switch(hosts: list[int], bits_per_second: int | None, mtu: int) -> None:
    with IPRoute() as route:
        route.link("add", ifname=_BRIDGE, kind="bridge", mtu=mtu)
        bridge = route.link_lookup(ifname=_BRIDGE)[0]
        route.link("set", index=bridge, state="up")
        for number, descriptor in enumerate(hosts):
            port = f"port{number}"
            far_end = {"ifname": INTERFACE, "net_ns_fd": descriptor, "mtu": mtu}
            route.link("add", ifname=port, kind="veth", mtu=mtu, peer=far_end)
            index = route.link_lookup(ifname=port)[0]
            shape(route, index, bits_per_second)
            route.link("set", index=index, master=bridge, state="up")


def _build_host(own_address: str, bits_per_second: int | None) -> None:
    _set_ipv6(":" in own_address)
    with IPRoute() as route:
        index = route.link_lookup(ifname=INTERFACE)[0]
        shape(route, index, bits_per_second)
        _add_address(route, index, own_address)
        route.link("set", index=index, state="up")
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")


def _add_address(route: IPRoute, index: int, address: str) -> None:
    if ":" not in address:
        route.addr("add", index=index, address=address, prefixlen=_PREFIX_IPV4)
        return
    # Nobody else has the address, so nobody need wait a second until that is known.
    route.addr("add", index=index, address=address, prefixlen=_PREFIX_IPV6, flags=_IFA_F_NODAD)


def _set_ipv6(wanted: bool) -> None:
    # Without IPv6 no program picks a link-local address. A container may forbid this setting, or
    # the kernel may not have it; the lab works without.
    with (
        contextlib.suppress(OSError),
        open(f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6", "w") as setting,
    ):
        setting.write("0" if wanted else "1")
