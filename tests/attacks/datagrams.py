"""What a hostile host can send to a job's slots, as a process there that spies on a rank.

    python datagrams.py TAP INTERFACE HOST PORT DECOY RATE WINDOW_S

TAP is the descriptor of a packet socket at the first rank's host. From what passes there to the
aggregator, and back, it makes so many datagrams per second: garbage, forgeries and copies, to the
aggregator from its own address, and to either end as whole frames under the other's. In every other
window they go to the decoy, a host that has nothing to do with it all, so that what it costs to
send them is always there. Prints when each window of attack began and ended, by the clock that all
processes share, and how many went out; ends when its input does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

HEADERS, HEAD = 42, 40
COPIES = 400
# Bytes of the largest datagram in a packet, and of a full contribution.
LARGEST, CONTRIBUTION = 1472, 1072
BATCH_S = 0.005
# Where fields are in a datagram (core/wire/datagram.hpp).
KIND, WORKER, SLOT, JOB, EPOCH, ROUND, TAG = 1, 2, 4, 8, 16, 20, 32
HELLO = 4


def flipped(data: bytes, at: int) -> bytes:
    """A forgery: its sender does not know the key, so the tag stays as it was."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


FORGERIES: list[Callable[[bytes], bytes]] = [
    lambda _: os.urandom(random.choice((0, 1, 39, 40, 48, 1072, 1472))),
    lambda data: data[:16] + os.urandom(1056),
    lambda _: bytes(8972),
    lambda data: flipped(data, WORKER),
    lambda data: flipped(data, SLOT),
    lambda data: flipped(data, JOB),
    lambda data: flipped(data, EPOCH),
    lambda data: flipped(data, ROUND),
    lambda data: flipped(data, TAG),
    lambda data: flipped(data, len(data) - 1),
    lambda data: data[:-1],
    lambda data: data,
]
"""The last one is a copy."""


def is_of_udp(frame: bytes) -> bool:
    return (
        len(frame) > HEADERS + HEAD
        and frame[12:14] == b"\x08\x00"
        and frame[23] == socket.IPPROTO_UDP
    )


def first_of(frame: bytes) -> bytes:
    """Without all datagrams but the first: the device gets many as one, with one header."""
    data = frame[HEADERS:]
    if len(data) > LARGEST:
        data = data[:CONTRIBUTION]
    lengths = (len(data) + size for size in (28, 8))
    whole, udp = (length.to_bytes(2, "big") for length in lengths)
    ip = frame[14:16] + whole + frame[18:24] + bytes(2) + frame[26:34]
    total = sum(struct.unpack("!10H", ip))
    check = (0xFFFF - total % 0xFFFF).to_bytes(2, "big")
    return frame[:14] + ip[:10] + check + ip[12:] + frame[34:38] + udp + bytes(2) + data


class Spy:
    """The latest datagrams between a rank and the aggregator, as frames: greetings, and others."""

    def __init__(self, tap: socket.socket, host: str, port: int) -> None:
        self._tap = tap
        self._tap.setblocking(False)
        self._address = socket.inet_aton(host) + port.to_bytes(2, "big")
        self._kept = [deque[bytes](maxlen=COPIES) for _ in range(3)]
        self._greetings, self._there, self._back = self._kept

    def has_any(self) -> bool:
        return any(self._kept)

    def pick(self) -> bytes:
        return random.choice(random.choice([kept for kept in self._kept if kept]))

    def look(self) -> None:
        """Take some of what has passed; the rest would only cost time."""
        for _ in range(20):
            try:
                frame = self._tap.recv(1 << 16)
            except BlockingIOError:
                return
            if is_of_udp(frame):
                self._keep(first_of(frame))

    def _keep(self, frame: bytes) -> None:
        if frame[26:30] + frame[34:36] == self._address:
            self._back.append(frame)
        elif frame[30:34] + frame[36:38] == self._address:
            is_greeting = frame[HEADERS + KIND] == HELLO
            (self._greetings if is_greeting else self._there).append(frame)


class Sender:
    """Of datagrams under the host's own address, and of frames under any."""

    def __init__(self, interface: str) -> None:
        self._own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._raw.bind((interface, 0))
        # What a switch learns from; with another's the switch would be attacked.
        self._hardware = self._raw.getsockname()[4]

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):
            self._own.sendto(data, to)

    def inject(self, frame: bytes, data: bytes) -> None:
        """Send data, as long as the frame's, under its addresses."""
        data = data.ljust(len(frame) - HEADERS, b"\0")[: len(frame) - HEADERS]
        with contextlib.suppress(OSError):
            self._raw.send(frame[:6] + self._hardware + frame[12:HEADERS] + data)


def strikes(spy: Spy, sender: Sender, to: tuple[str, int]) -> Iterator[None]:
    """Each step sends one datagram, of all kinds in turn."""
    for forge in itertools.cycle(FORGERIES):
        sender.send(forge(spy.pick()[HEADERS:]), to)
        yield
        frame = spy.pick()
        sender.inject(frame, forge(frame[HEADERS:]))
        yield
        frame = spy.pick()
        sender.inject(frame, frame[HEADERS:])
        yield


def blanks(spy: Spy, sender: Sender, to: tuple[str, int]) -> Iterator[None]:
    """Each step sends one datagram to the decoy."""
    for forge in itertools.cycle(FORGERIES):
        for made in (forge, forge, bytes):
            sender.send(made(spy.pick()[HEADERS:]), to)
            yield


def fire(blow: Iterator[None], spy: Spy, rate: float, until: float) -> int:
    """Strike at that rate; returns how often."""
    start, sent = time.monotonic(), 0
    while (now := time.monotonic()) < until and not is_over():
        spy.look()
        due = int((now - start) * rate) - sent
        for _ in range(due):
            next(blow)
        sent += due
        time.sleep(BATCH_S)
    return sent


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main(
    tap: int, interface: str, host: str, port: int, decoy: str, rate: float, window: float
) -> None:
    spy, sender = Spy(socket.socket(fileno=tap), host, port), Sender(interface)
    while not spy.has_any() and not is_over():
        spy.look()
        time.sleep(BATCH_S)
    harmless, harmful = blanks(spy, sender, (decoy, port)), strikes(spy, sender, (host, port))
    while not is_over():
        fire(harmless, spy, rate, time.monotonic() + window)
        begin = time.monotonic()
        sent = fire(harmful, spy, rate, begin + window)
        print(json.dumps([begin, time.monotonic(), sent]), flush=True)


if __name__ == "__main__":
    tap, interface, host, port, decoy, rate, window = sys.argv[1:]
    main(int(tap), interface, host, int(port), decoy, float(rate), float(window))
