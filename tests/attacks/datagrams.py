"""What a hostile host can send to an aggregator's slots, as a process beside a rank that it spies
on.

    python datagrams.py INTERFACE HOST PORT DECOY RATE WINDOW_S

From the first rank's host it copies what that sends to the aggregator, and sends so many datagrams
per second: garbage, forgeries and copies, from its own address and, as whole frames, from the
rank's. In every other window they go to the decoy, a host that has nothing to do with it all, so
that what it costs to send them is always there. Prints when each window of attack began and ended,
by the clock that all processes share, and how many went out; ends when its input does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator

HEADERS, HEAD = 42, 40
COPIES = 400
BATCH_S = 0.005
ETH_P_ALL = 3
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
"""What goes out from the attacker's own address, the copy among it."""


def is_copy(frame: bytes, host: str, port: int) -> bool:
    """Whether it goes to the aggregator by UDP over IPv4."""
    return (
        len(frame) > HEADERS + HEAD
        and frame[12:14] == b"\x08\x00"
        and frame[23] == socket.IPPROTO_UDP
        and frame[30:34] == socket.inet_aton(host)
        and frame[36:38] == port.to_bytes(2, "big")
    )


class Spy:
    """Frames that the host has sent to the aggregator: all greetings, and the latest others."""

    def __init__(self, interface: str, host: str, port: int) -> None:
        self._tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._tap.bind((interface, ETH_P_ALL))
        self._tap.setblocking(False)
        self._to = host, port
        self._greetings: list[bytes] = []
        self._others: list[bytes] = []

    @property
    def frames(self) -> list[bytes]:
        return self._greetings + self._others

    def look(self) -> None:
        """Take some of what has passed; the rest would only cost time."""
        for _ in range(20):
            try:
                frame = self._tap.recv(1 << 16)
            except BlockingIOError:
                return
            if is_copy(frame, *self._to):
                is_greeting = frame[HEADERS + KIND] == HELLO
                (self._greetings if is_greeting else self._others).append(frame)
        del self._greetings[:-COPIES], self._others[:-COPIES]

    def inject(self, frame: bytes) -> None:
        """Send it as the host did. Its checksum may have been left to the device."""
        with contextlib.suppress(OSError):
            self._tap.send(frame[:40] + bytes(2) + frame[42:])


def strikes(spy: Spy, sender: socket.socket, to: tuple[str, int]) -> Iterator[None]:
    """Each step sends one datagram to the aggregator, of all kinds in turn."""
    for forge in itertools.cycle(FORGERIES):
        with contextlib.suppress(OSError):
            sender.sendto(forge(random.choice(spy.frames)[HEADERS:]), to)
        yield
        spy.inject(random.choice(spy.frames))
        yield


def blanks(spy: Spy, sender: socket.socket, to: tuple[str, int]) -> Iterator[None]:
    """Each step sends one datagram to the decoy."""
    for forge in itertools.cycle(FORGERIES):
        for data in (forge(random.choice(spy.frames)[HEADERS:]), random.choice(spy.frames)):
            with contextlib.suppress(OSError):
                sender.sendto(data, to)
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


def main(interface: str, host: str, port: int, decoy: str, rate: float, window: float) -> None:
    spy = Spy(interface, host, port)
    while not spy.frames and not is_over():
        spy.look()
        time.sleep(BATCH_S)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        harmless, harmful = (blanks(spy, sender, (decoy, port)), strikes(spy, sender, (host, port)))
        while not is_over():
            fire(harmless, spy, rate, time.monotonic() + window)
            begin = time.monotonic()
            sent = fire(harmful, spy, rate, begin + window)
            print(json.dumps([begin, time.monotonic(), sent]), flush=True)


if __name__ == "__main__":
    interface, host, port, decoy, rate, window = sys.argv[1:]
    main(interface, host, int(port), decoy, float(rate), float(window))
