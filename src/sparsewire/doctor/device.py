"""What Linux knows of a network interface: unlike /sys, of one in one's own namespace."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from pyroute2 import Ethtool, IPRoute
from pyroute2.ethtool.ioctl import EthtoolError


class Device(NamedTuple):
    """An interface; None where something is not known."""

    interface: str | None = None
    mtu: int | None = None
    """The largest packet in bytes."""
    speed_mbit: int | None = None
    """The speed of the link as its driver tells; many virtual ones do not."""


def device_with(address: str) -> Device:
    """The interface that has this IP address."""
    with IPRoute() as route:
        for entry in route.get_addr():
            if address in (entry.get_attr("IFA_LOCAL"), entry.get_attr("IFA_ADDRESS")):
                (link,) = route.get_links(entry["index"])
                name = link.get_attr("IFLA_IFNAME")
                return Device(name, link.get_attr("IFLA_MTU"), _speed_mbit(link, name))
    return Device()


def _speed_mbit(link: Any, name: str) -> int | None:
    # This one tells 10000, whatever shapes it.
    if link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") != "veth":
        with contextlib.suppress(EthtoolError), Ethtool() as ethtool:
            return ethtool.get_link_mode(name).speed or None
    return None
