"""Wires the lab: for each link of a host a bridge as the switch, and a shaped cable from it.

Racks have a switch each, and a trunk from it to that of the first.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import EthtoolError
from pyroute2.netlink.exceptions import NetlinkError

from sparsewire.tools.lab import cable, xdp
from sparsewire.tools.lab.cable import End, Link
from sparsewire.tools.lab.namespace import Namespace, interface_name

_IFA_F_NODAD = 0x02


class Host(NamedTuple):
    """A host to connect: its namespace, its address on each of its links, their kind, its rack."""

    namespace: Namespace
    addresses: Sequence[str]
    link: Link
    rack: int = 0


def build(
    switch: Namespace,
    hosts: Sequence[Host],
    aggregators: Sequence[Host],
    *,
    trunk: Link | None = None,
    use_xdp: bool = False,
) -> None:
    """Connect all hosts to bridges in `switch`, one for each of their links in each rack.

    Where there are several racks, `trunk` connects them. With `use_xdp`, what XDP programs at
    aggregators send arrives, and datagrams come to them one by one. Raises OSError where the kernel
    refuses.
    """
    try:
        for number in range(len(hosts[0].addresses)):
            for rack in sorted({host.rack for host in hosts}):
                switch.call(_build_bridge, _bridge(number, rack), hosts[0].link.mtu)
                if rack and trunk:
                    _connect_rack(switch, number, rack, trunk)
            for place, host in enumerate(hosts):
                port = End(switch, f"port{number}-{place}")
                _connect(port, _bridge(number, host.rack), host, number, host.link)
            for place, host in enumerate(aggregators):
                edge = _connect_aggregator(switch, host, number, place)
                if use_xdp:
                    switch.call(xdp.accept, edge)
                    switch.call(cable.segment_here, edge, cable.UDP_SEGMENTING)
                    if host.link.loss is None:
                        switch.call(cable.merge_datagrams, edge)
    except (NetlinkError, EthtoolError) as error:
        raise OSError(f"cannot build the network: {error!r}") from error


def _bridge(number: int, rack: int) -> str:
    """The name of a rack's switch for its hosts' link `number`."""
    return f"switch{number}-{rack}"


def _connect_rack(switch: Namespace, number: int, rack: int, trunk: Link) -> None:
    near, far = (End(switch, f"{kind}{number}-{rack}") for kind in ("hub", "trunk"))
    cable.lay(near, far, trunk)
    switch.call(_plug_in, near.name, _bridge(number, 0))
    switch.call(_plug_in, far.name, _bridge(number, rack))


def _connect(port: End, bridge: str, host: Host, number: int, link: Link) -> None:
    """Lay the cable of a host's link `number`."""
    interface = End(host.namespace, interface_name(number))
    cable.lay(port, interface, link)
    port.namespace.call(_plug_in, port.name, bridge)
    host.namespace.call(_settle, interface.name, host.addresses[number])


def _connect_aggregator(switch: Namespace, host: Host, number: int, place: int) -> str:
    """Connect an aggregator by way of a bridge of its own, and shape the cable from that.

    What an XDP program sends passes by the shaper of the interface that it sits on. Returns the
    name of the other end of its cable.
    """
    hop, near, far = (f"{kind}{number}-{place}" for kind in ("hop", "near", "far"))
    switch.call(_build_bridge, hop, host.link.mtu)
    cable.lay(End(switch, near), End(switch, far), host.link)
    switch.call(_plug_in, near, _bridge(number, host.rack))
    switch.call(_plug_in, far, hop)
    edge = f"edge{number}-{place}"
    _connect(End(switch, edge), hop, host, number, Link(None, host.link.mtu))
    return edge


def _build_bridge(name: str, mtu: int) -> None:
    with IPRoute() as route:
        route.link("add", ifname=name, kind="bridge", mtu=mtu)
        route.link("set", index=route.link_lookup(ifname=name)[0], state="up")
    # A switch has no firewall of hosts; here it would look at each datagram three times.
    for firewall in ("iptables", "ip6tables"):
        _set_where_there_is(f"bridge/bridge-nf-call-{firewall}", "0")


def _plug_in(port: str, bridge: str) -> None:
    with IPRoute() as route:
        index, master = (route.link_lookup(ifname=name)[0] for name in (port, bridge))
        route.link("set", index=index, master=master, state="up")


def _settle(name: str, own_address: str) -> None:
    """Give a host's interface its address, and begin to use it."""
    is_ipv6 = ":" in own_address
    _set_ipv6(name, is_ipv6)
    # Nobody else has the address, so nobody need wait a second until that is known.
    form = {"prefixlen": 64, "flags": _IFA_F_NODAD} if is_ipv6 else {"prefixlen": 24}
    with IPRoute() as route:
        index = route.link_lookup(ifname=name)[0]
        route.addr("add", index=index, address=own_address, **form)
        route.link("set", index=index, state="up")
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")


def _set_ipv6(name: str, wanted: bool) -> None:
    # Without IPv6 no program picks a link-local address.
    _set_where_there_is(f"ipv6/conf/{name}/disable_ipv6", "0" if wanted else "1")


def _set_where_there_is(setting: str, value: str) -> None:
    # A container may forbid a setting, or the kernel may not have it; the lab works without.
    with contextlib.suppress(OSError), open(f"/proc/sys/net/{setting}", "w") as file:
        file.write(value)
