"""A TCP flow beside slots on one worker's link: what each keeps of it, in either direction.

    python benchmarks/slots_beside_tcp.py --transport udp --congestion cubic --record

In the lab, as root: 4 ranks at 500 Mbit/s, an aggregator at 2 Gbit/s, and a host that has no part
in the job, which takes what rank 0's host sends (`up`), or sends to it (`down`). First the flow is
alone; then the job takes steps, and windows with the flow and without it take turns. A row of the
record for each direction.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import slots_job

from sparsewire.tools.lab import Lab
from sparsewire.tools.lab.quantities import parse_link

RANKS, LINK, AGGREGATOR_LINK = 4, "500mbit", "2gbit"
ELEMENTS = 1_000_000
PATIENCE_S = 120.0
# What a flow needs to find its rate.
SETTLE_S = 1.0
PIECE_BYTES = 1 << 18
# Of Ethernet, IP and TCP with timestamps, against 1514 bytes on the link.
PAYLOAD_SHARE = 1448 / 1514

RISING = "datagrams_sent", "retransmissions"

WAYS = {"up": (0, RANKS), "down": (RANKS, 0)}
"""From which host to which the flow goes."""


class Window(NamedTuple):
    """Since when a flow was settled, until when, and what came of it meanwhile."""

    begin: float
    end: float
    received: int

    @property
    def link_share(self) -> float:
        bits = 8 * self.received / PAYLOAD_SHARE
        return bits / (self.end - self.begin) / parse_link(LINK)


class Step(NamedTuple):
    """Of the job: when it began, how long it took, and the rank's counters then."""

    begin: float
    took: float
    counters: dict[str, float]

    @property
    def again_share(self) -> float:
        """Of the datagrams, those that were repeated."""
        return self.counters["retransmissions"] / max(1.0, self.counters["datagrams_sent"])

    def is_within(self, window: Window) -> bool:
        return window.begin <= self.begin and self.begin + self.took <= window.end

    def touches(self, window: Window) -> bool:
        return self.begin + self.took > window.begin - SETTLE_S and self.begin < window.end


@contextlib.contextmanager
def connected(lab: Lab, way: str, congestion: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A sender and its receiver, each in its host's namespace."""
    source, sink = map(lab.namespace, WAYS[way])
    address = lab.addresses[WAYS[way][1]], 0
    with sink.call(socket.create_server, address) as listener:
        out = source.call(socket.create_connection, listener.getsockname())
        incoming, _ = listener.accept()
    with out, incoming:
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        yield out, incoming


def flow(lab: Lab, way: str, congestion: str, seconds: float) -> Window:
    """Send as fast as TCP lets."""
    with connected(lab, way, congestion) as (out, incoming):
        sender = threading.Thread(target=_pour, args=(out,))
        sender.start()
        try:
            _take(incoming, SETTLE_S)
            begin = time.monotonic()
            received = _take(incoming, seconds - SETTLE_S)
            return Window(begin, time.monotonic(), received)
        finally:
            out.shutdown(socket.SHUT_RDWR)
            sender.join()


def _pour(out: socket.socket) -> None:
    piece = bytes(PIECE_BYTES)
    with contextlib.suppress(OSError):
        while True:
            out.sendall(piece)


def _take(incoming: socket.socket, seconds: float) -> int:
    """Bytes that come in that time."""
    room, received, until = bytearray(PIECE_BYTES), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        received += incoming.recv_into(room)
    return received


def beside(lab: Lab, way: str, given: argparse.Namespace) -> tuple[list[Window], list[Step]]:
    """The flow's windows, and the steps of rank 0 meanwhile and between."""
    aggregation = slots_job.start_aggregators(lab)
    seconds = 2 * given.windows * given.seconds
    arguments = seconds, given.elements
    ranks = slots_job.start_ranks(lab, aggregation, RANKS, slots_job.STEPS, *arguments)
    slots_job.await_ready(ranks)
    windows = []
    for _ in range(given.windows):
        time.sleep(given.seconds)
        windows.append(flow(lab, way, given.congestion, given.seconds))
    told, *_ = slots_job.what_they_say(ranks, PATIENCE_S)
    return windows, steps_of(told["steps"])


def steps_of(told: list[tuple[float, float, dict[str, float]]]) -> list[Step]:
    """What a rank tells, with counters of the step alone; the first step has warmed up."""
    return [
        Step(begin, took, {**after, **{name: after[name] - before[name] for name in RISING}})
        for (_, _, before), (begin, took, after) in itertools.pairwise(told)
    ]


def measure(way: str, given: argparse.Namespace) -> records.Row:
    with Lab(
        RANKS + 1, LINK, aggregators=1, aggregator_link=AGGREGATOR_LINK, transport=given.transport
    ) as lab:
        alone = flow(lab, way, given.congestion, given.seconds)
        windows, steps = beside(lab, way, given)
    quiet = [step for step in steps if not any(map(step.touches, windows))]
    busy = [step for step in steps if any(map(step.is_within, windows))]
    shares = [each.link_share for each in windows]
    return {
        "alone_link_share": alone.link_share,
        "beside_link_share": statistics.median(shares),
        "least_beside_link_share": min(shares),
        **{f"quiet_{name}": value for name, value in summary(quiet).items()},
        **{f"beside_{name}": value for name, value in summary(busy).items()},
        "windows": given.windows,
        "elements": given.elements,
    }


def summary(steps: list[Step]) -> records.Row:
    """Medians of steps, and of the path's state after each; of none, where slots are so slow."""
    if not steps:
        return {"steps": 0}
    return {
        "step_s": statistics.median(step.took for step in steps),
        "window": statistics.median(step.counters["window"] for step in steps),
        "rtt_s": statistics.median(step.counters["rtt_us"] for step in steps) * 1e-6,
        "again_share": statistics.median(step.again_share for step in steps),
        "steps": len(steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transport", choices=["udp", "xdp", "tcp"], default="udp")
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control")
    parser.add_argument("--windows", type=int, default=3, help="with the flow")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a window")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of a step's tensor")
    parser.add_argument("--record", action="store_true", help="keep it in records/slots-tcp")
    given = parser.parse_args()
    for way in WAYS:
        row = measure(way, given)
        print(way, *row.items(), sep="\n  ", flush=True)
        if given.record:
            records.keep("slots-tcp", f"{given.transport}/{given.congestion}/{way}", row)


if __name__ == "__main__":
    main()
