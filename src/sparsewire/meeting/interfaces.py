"""What Linux knows of the network interface that has an address."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple


class Device(NamedTuple):
    """An interface as Linux knows it in this namespace, unlike /sys; None for what it does not."""

    interface: str | None = None
    mtu: int | None = None
    """The largest packet in bytes."""
    speed_mbit: int | None = None
    """The speed of the link as its driver tells; many virtual ones do not."""


def device_with(address: str) -> Device:
    """The interface that has this IP address."""
    from pyroute2 import IPRoute  # Only here: it takes as long to import as all else together.

    with IPRoute() as route:
        for entry in route.get_addr():
            if address in (entry.get_attr("IFA_LOCAL"), entry.get_attr("IFA_ADDRESS")):
                (link,) = route.get_links(entry["index"])
                name = link.get_attr("IFLA_IFNAME")
                return Device(name, link.get_attr("IFLA_MTU"), _speed_mbit(link, name))
    return Device()


def slowest_mbit(addresses: list[str]) -> int:
    """The speed of the slowest link behind these addresses; 0 where some is not known."""
    return min(device_with(address).speed_mbit or 0 for address in addresses)


def _speed_mbit(link: Any, name: str) -> int | None:
    from pyroute2 import Ethtool
    from pyroute2.ethtool.ioctl import EthtoolError

    # This one tells 10000, whatever shapes it.
    if link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") != "veth":
        with contextlib.suppress(EthtoolError, OSError), Ethtool() as ethtool:
            return ethtool.get_link_mode(name).speed or None
    return None
