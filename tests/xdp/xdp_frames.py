"""Ethernet frames with UDP over IPv4 in plain Python."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class End:
    """One end of a conversation."""

    mac: bytes
    host: str
    port: int


def frame(sender: End, receiver: End, payload: bytes) -> bytes:
    udp = struct.pack(">4H", sender.port, receiver.port, 8 + len(payload), 0xABCD) + payload
    return receiver.mac + sender.mac + b"\x08\x00" + ip_header(sender, receiver, len(udp)) + udp


def ip_header(sender: End, receiver: End, length: int) -> bytes:
    ends = socket.inet_aton(sender.host) + socket.inet_aton(receiver.host)
    fields = struct.pack(">BBHHHBB", 0x45, 0, 20 + length, 7, 0x4000, 3, 17)
    return fields + struct.pack(">H", checksum(fields + bytes(2) + ends)) + ends


def checksum(data: bytes) -> int:
    total = sum(half for (half,) in struct.iter_unpack(">H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
