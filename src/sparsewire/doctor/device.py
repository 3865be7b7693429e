"""What Linux knows of a network interface: unlike /sys, of one in one's own namespace."""

from __future__ import annotations

import contextlib
from typing import Any

from pyroute2 import Ethtool, IPRoute
from pyroute2.ethtool.ioctl import EthtoolError
from pyroute2.netlink.exceptions import NetlinkError


def interface_of(address: str) -> str | None:
    """The name of the interface that has this IP address."""
    with IPRoute() as route:
        indices = {
            entry["index"]
            for entry in route.get_addr()
            if address in (entry.get_attr("IFA_LOCAL"), entry.get_attr("IFA_ADDRESS"))
        }
        names = [link.get_attr("IFLA_IFNAME") for link in route.get_links(*indices)]
    return names[0] if indices and names else None


def mtu(interface: str) -> int | None:
    """The largest packet in bytes."""
    link = _link(interface)
    return None if link is None else int(link.get_attr("IFLA_MTU"))


def speed_mbit(interface: str) -> int | None:
    """The speed of the link in Mbit/s as its driver tells; many virtual ones do not."""
    link = _link(interface)
    # This one tells 10000, whatever shapes it.
    if link is None or link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") == "veth":
        return None
    with contextlib.suppress(EthtoolError), Ethtool() as ethtool:
        return ethtool.get_link_mode(interface).speed or None
    return None


def _link(interface: str) -> Any:
    with IPRoute() as route, contextlib.suppress(NetlinkError):
        return next(iter(route.link("get", ifname=interface)), None)
    return None
