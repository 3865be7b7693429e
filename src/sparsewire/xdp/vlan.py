"""VLANs whose tags a network card takes off before the programs see a frame: answers would go
without them, and get lost."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from pathlib import Path

_SIOCETHTOOL, _GET_FLAGS = 0x8946, 0x25
_STRIPS_TAGS = 1 << 8
_VLANS = Path("/proc/thread-self/net/vlan/config")


def stripped_vlans(interface: str) -> list[str]:
    """Names of the VLAN devices on an interface that takes their tags off."""
    return _vlans_on(interface) if _strips_tags(interface) else []


def _vlans_on(interface: str) -> list[str]:
    """VLANs of an interface, from lines such as `eth0.7 | 7 | eth0` behind two header lines."""
    try:
        lines = _VLANS.read_text().splitlines()[2:]
    except OSError:  # Nobody has made one.
        return []
    devices = ([field.strip() for field in line.split("|")] for line in lines)
    return [device[0] for device in devices if device[-1] == interface]


def _strips_tags(interface: str) -> bool:
    value = ctypes.create_string_buffer(struct.pack("II", _GET_FLAGS, 0))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        except OSError:  # A driver that has no such flags.
            return False
    return bool(struct.unpack("II", value.raw[:8])[1] & _STRIPS_TAGS)
