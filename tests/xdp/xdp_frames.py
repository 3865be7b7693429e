"""Ethernet frames with UDP over IPv4 and IPv6 in plain Python."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

ETHERNET, VLAN_TAG = 14, b"\x81\x00\x00\x64"


@dataclass(frozen=True)
class End:
    """One end of a conversation."""

    mac: bytes
    host: str
    port: int

    @property
    def is_v6(self) -> bool:
        return ":" in self.host

    @property
    def packed(self) -> bytes:
        return socket.inet_pton(socket.AF_INET6 if self.is_v6 else socket.AF_INET, self.host)


def frame(sender: End, receiver: End, payload: bytes, *, tagged: bool = False) -> bytes:
    udp = struct.pack(">4H", sender.port, receiver.port, 8 + len(payload), 0xABCD) + payload
    ends = receiver.mac + sender.mac + (VLAN_TAG if tagged else b"")
    return ends + (ipv6(sender, receiver, udp) if sender.is_v6 else ipv4(sender, receiver, udp))


def ipv4(sender: End, receiver: End, udp: bytes) -> bytes:
    ends = sender.packed + receiver.packed
    fields = struct.pack(">BBHHHBB", 0x45, 0, 20 + len(udp), 7, 0x4000, 3, 17)
    check = struct.pack(">H", checksum(fields + bytes(2) + ends))
    return b"\x08\x00" + fields + check + ends + udp


def ipv6(sender: End, receiver: End, udp: bytes) -> bytes:
    fields = struct.pack(">IHBB", 6 << 28, len(udp), 17, 3)
    return b"\x86\xdd" + fields + sender.packed + receiver.packed + udp


def headers(is_v6: bool, tagged: bool = False) -> int:
    """Bytes before the datagram."""
    return ETHERNET + 4 * tagged + (40 if is_v6 else 20) + 8


def checksum(data: bytes) -> int:
    total = sum(half for (half,) in struct.iter_unpack(">H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
