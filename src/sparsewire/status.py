"""The state of a communicator as dicts of plain values, for people and `sparsewire top`."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sparsewire._core import Communicator as Core

_PATIENCE_S = 1.0
"""How long lanes have to answer."""

Lane = tuple[dict[int, list[int | str]], list[tuple[Any, ...]], list[tuple[str, float, str, int]]]
Status = dict[str, Any]


def survey(core: Core, first_operation: int) -> Status:
    """The state of the engine, without rates: see `Communicator.status`.

    Operations are numbered from `first_operation` on, the first one of the user.
    """
    told = core.survey(_PATIENCE_S)
    lanes = told["lanes"]
    operations = [
        {
            "op": op,
            "seq": seq - first_operation,
            "seconds": seconds,
            "bytes": size,
            "agreeing": is_agreeing,
            "waits_for": _awaited(seq, lanes),
        }
        for op, seq, seconds, size, is_agreeing in told["operations"]
    ]
    oldest = operations[0] if operations else {}
    return {
        "in_flight": told["in_flight"],
        **{name: oldest.get(name) for name in ("op", "seq", "seconds")},
        "silent": {_name(peer, rank): quiet for peer, rank, quiet in told["silent"]},
        "failure": told["failure"],
        "operations": operations,
        "peers": _peers(lanes),
        "datagrams": _datagrams(lanes),
        "lanes": [_lane(lane) for lane in lanes],
        "memory": {
            "queued_bytes": sum(peer[-1] for lane in lanes if lane for peer in lane[1]),
            "resident_bytes": _resident_bytes(),
        },
    }


def _name(peer: str, rank: int) -> int | str:
    return peer if rank < 0 else rank


def _awaited(seq: int, lanes: Sequence[Lane | None]) -> list[int | str]:
    named = {peer for lane in lanes if lane for peer in lane[0].get(seq, [])}
    return sorted(named, key=lambda peer: (isinstance(peer, str), peer))


def _peers(lanes: Sequence[Lane | None]) -> dict[int | str, Status]:
    """The state of each peer, summed over lanes; the first lane listens for signs of life."""
    peers: dict[int | str, Status] = {}
    for lane in lanes:
        for name, rank, is_connected, quiet, sent, received, queued in lane[1] if lane else []:
            peer = peers.setdefault(
                _name(name, rank),
                {
                    "connected": False,
                    "quiet_s": None,
                    "bytes_sent": 0,
                    "bytes_received": 0,
                    "queued_bytes": 0,
                },
            )
            peer["connected"] |= is_connected
            peer["quiet_s"] = quiet if quiet is not None else peer["quiet_s"]
            peer["bytes_sent"] += sent
            peer["bytes_received"] += received
            peer["queued_bytes"] += queued
    return peers


def _datagrams(lanes: Sequence[Lane | None]) -> dict[str, Status]:
    """The state of each aggregator that datagrams go to, by address."""
    return {
        address: {"unanswered_s": seconds, "error": error, "receive_buffer": buffer}
        for lane in lanes
        for address, seconds, error, buffer in (lane[2] if lane else [])
    }


def _lane(lane: Lane | None) -> Status:
    if lane is None:
        return {"answers": False, "in_flight": None, "queued_bytes": None}
    awaited, peers, _ = lane
    return {
        "answers": True,
        "in_flight": len(awaited),
        "queued_bytes": sum(peer[-1] for peer in peers),
    }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Sample(NamedTuple):
    """Counters, and the time `at` which they were read: seconds of a clock that does not jump."""

    at: float
    counters: Mapping[str, int]


def rates(before: Sample, now: Sample) -> Status:
    """Rates per second between two samples, and the share of the input that was sent."""
    seconds = now.at - before.at
    added = {name: count - before.counters[name] for name, count in now.counters.items()}

    def of(name: str) -> float:
        return added[name] / seconds if seconds > 0 else 0.0

    return {
        "interval_s": seconds,
        "bytes_sent_per_s": of("bytes_sent") + of("datagram_bytes_sent"),
        "bytes_received_per_s": of("bytes_received") + of("datagram_bytes_received"),
        "operations_per_s": of("operations"),
        "density": added["elements_sent"] / added["elements"] if added["elements"] else None,
    }


class Intervals:
    """Rates from one call to the next, of any thread."""

    def __init__(self, counters: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._before = Sample(time.monotonic(), counters)

    def until_now(self, counters: Mapping[str, int]) -> Status:
        with self._lock:
            now = Sample(time.monotonic(), counters)
            before, self._before = self._before, now
        return rates(before, now)
