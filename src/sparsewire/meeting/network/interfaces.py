"""Linux's facts about the network interface that has an address."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire._core import interfaces


class Device(NamedTuple):
    """An interface as Linux knows it in this namespace, unlike /sys; None for what it does not."""

    interface: str | None = None
    mtu: int | None = None
    """The largest packet in bytes."""
    speed_mbit: int | None = None
    """The speed of the link as its driver tells; many virtual ones do not."""


def device_with(address: str) -> Device:
    """The interface that has this IP address."""
    for name, addresses, mtu, speed_mbit in interfaces():
        if address in addresses:
            return Device(name, mtu, speed_mbit)
    return Device()


def slowest_mbit(addresses: list[str]) -> int:
    """The speed of the slowest link behind these addresses; 0 where some is not known."""
    return min(device_with(address).speed_mbit or 0 for address in addresses)
