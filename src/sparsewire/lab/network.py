"""Wires the lab: for each link of a host a bridge as the switch, and shaped veth pairs from it."""

import contextlib
from collections.abc import Sequence

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from sparsewire.lab.namespace import Namespace, interface_name

# A burst passes unshaped after every pause, so it is as small as it can be: a packet that TCP has
# not yet cut into segments is up to 64 KiB long, and has to fit. With 256 KiB, a short collective
# at 100 Mbit/s would beat the wire.
_BURST_BYTES = 80 * 1024
# The buffer of a port of a common switch. Eight senders to one receiver lose nothing in it.
_QUEUE_BYTES = 4 * 1024 * 1024

_IFA_F_NODAD = 0x02


def build(
    switch: Namespace,
    hosts: Sequence[Namespace],
    networks: Sequence[Sequence[str]],
    bits_per_second: int | None,
    mtu: int,
) -> None:
    """Connect `hosts` to bridges in `switch`; every link is limited to `bits_per_second`.

    `networks` has the addresses of all hosts for each link. Raises OSError where the kernel
    refuses.
    """
    descriptors = [host.descriptor for host in hosts]
    try:
        for link, addresses in enumerate(networks):
            switch.call(_build_switch, link, descriptors, bits_per_second, mtu)
            for host, address in zip(hosts, addresses, strict=True):
                host.call(_build_host, interface_name(link), address, bits_per_second)
    except NetlinkError as error:
        raise OSError(error.code, f"cannot build the network: {error}") from error


def _build_switch(link: int, hosts: list[int], bits_per_second: int | None, mtu: int) -> None:
    name = f"switch{link}"
    with IPRoute() as route:
        route.link("add", ifname=name, kind="bridge", mtu=mtu)
        bridge = route.link_lookup(ifname=name)[0]
        route.link("set", index=bridge, state="up")
        for number, descriptor in enumerate(hosts):
            port = f"port{link}-{number}"
            far_end = {"ifname": interface_name(link), "net_ns_fd": descriptor, "mtu": mtu}
            route.link("add", ifname=port, kind="veth", mtu=mtu, peer=far_end)
            index = route.link_lookup(ifname=port)[0]
            _shape(route, index, bits_per_second)
            route.link("set", index=index, master=bridge, state="up")


def _build_host(name: str, own_address: str, bits_per_second: int | None) -> None:
    is_ipv6 = ":" in own_address
    _set_ipv6(name, is_ipv6)
    # Nobody else has the address, so nobody need wait a second until that is known.
    form = {"prefixlen": 64, "flags": _IFA_F_NODAD} if is_ipv6 else {"prefixlen": 24}
    with IPRoute() as route:
        index = route.link_lookup(ifname=name)[0]
        _shape(route, index, bits_per_second)
        route.addr("add", index=index, address=own_address, **form)
        route.link("set", index=index, state="up")
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")


def _shape(route: IPRoute, index: int, bits_per_second: int | None) -> None:
    """Limit what leaves through interface `index`, with a finite queue that drops the overflow."""
    if bits_per_second is not None:
        rate = bits_per_second // 8
        route.tc("add", "tbf", index=index, rate=rate, burst=_BURST_BYTES, limit=_QUEUE_BYTES)


def _set_ipv6(name: str, wanted: bool) -> None:
    # Without IPv6 no program picks a link-local address. A container may forbid this setting, or
    # the kernel may not have it; the lab works without.
    with (
        contextlib.suppress(OSError),
        open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as setting,
    ):
        setting.write("0" if wanted else "1")
