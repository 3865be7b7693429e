"""What Linux knows of a network interface, asked by ioctl: unlike /sys, in one's own namespace."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

from sparsewire.meeting.interface import address_of_interface

_SIOCGIFMTU = 0x8921
_SIOCETHTOOL = 0x8946
_ETHTOOL_GSET = 1
_ETHTOOL_GDRVINFO = 3
_ETHTOOL_BYTES = 44
_SPEED_LOW, _SPEED_HIGH = 12, 28
_DRIVER_BYTES = 196
_DRIVER = slice(4, 36)
_UNKNOWN_SPEEDS = {0, 0xFFFFFFFF, 0xFFFF}


def interface_of(address: str) -> str | None:
    """The name of the interface that has this IP address."""
    for _, name in socket.if_nameindex():
        try:
            if address_of_interface(name) == address:
                return name
        except ValueError:
            continue
    return None


def mtu(interface: str) -> int | None:
    """The largest packet in bytes."""
    request = _ask(_SIOCGIFMTU, struct.pack("16si12x", interface.encode(), 0))
    return None if request is None else int(struct.unpack_from("i", request, 16)[0])


def speed_mbit(interface: str) -> int | None:
    """The speed of the link in Mbit/s as its driver tells; many virtual ones do not."""
    answer = _ethtool(interface, _ETHTOOL_GSET, _ETHTOOL_BYTES)
    # This one tells 10000, whatever shapes it.
    if answer is None or _driver(interface) == "veth":
        return None
    low, high = (struct.unpack_from("H", answer, at)[0] for at in (_SPEED_LOW, _SPEED_HIGH))
    speed = high << 16 | low
    return None if speed in _UNKNOWN_SPEEDS else speed


def _driver(interface: str) -> str | None:
    answer = _ethtool(interface, _ETHTOOL_GDRVINFO, _DRIVER_BYTES)
    return None if answer is None else answer[_DRIVER].rstrip(b"\0").decode()


def _ethtool(interface: str, command: int, size: int) -> bytes | None:
    answer = array.array("B", struct.pack("I", command).ljust(size, b"\0"))
    address, _ = answer.buffer_info()
    if _ask(_SIOCETHTOOL, struct.pack("16sP8x", interface.encode(), address)) is None:
        return None
    return answer.tobytes()


def _ask(what: int, request: bytes) -> bytes | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return fcntl.ioctl(probe, what, request)
        except OSError:
            return None
