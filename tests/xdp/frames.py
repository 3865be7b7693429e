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


def taken_apart(data: bytes) -> tuple[End, End, bytes]:
    """Sender, receiver and payload. Raises AssertionError where a length or checksum is wrong."""
    header = data[14:34]
    assert data[12:14] == b"\x08\x00"
    assert header[0] == 0x45
    assert checksum(header) == 0
    assert int.from_bytes(header[2:4], "big") == len(data) - 14
    source, target, length, udp_checksum = struct.unpack_from(">4H", data, 34)
    assert length == len(data) - 34
    assert udp_checksum == 0
    sender = End(data[6:12], socket.inet_ntoa(header[12:16]), source)
    return sender, End(data[:6], socket.inet_ntoa(header[16:20]), target), data[42:]
