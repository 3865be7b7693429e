"""The number of an aggregator in its job, and the keys that seal its datagrams."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire.meeting.contact.handshake import derive

_ABOVE_RACKS = 0xFFFF


def aggregator_number(index: int, rack: int = 0) -> int:
    """The number of one of a job's aggregators; no other aggregator of the job has it.

    It holds the index in the ranks' lists, and the rack if there are racks.
    """
    return index << 16 | rack


def number_above(number: int) -> int:
    """The number of the parent of a rack's aggregator."""
    return number | _ABOVE_RACKS


def is_above_racks(number: int) -> bool:
    """Whether an aggregator of this number has racks' aggregators for workers."""
    return number & _ABOVE_RACKS == _ABOVE_RACKS


class WayKeys(NamedTuple):
    """The keys of datagrams between one aggregator and its workers."""

    up: bytes
    """Seals datagrams from the workers to the aggregator; `down` seals those that go back."""
    down: bytes

    def __repr__(self) -> str:
        return "WayKeys()"


def datagram_keys(key: bytes, epoch: int, number: int) -> WayKeys:
    """Keys derived from the key of a job's connections and the aggregator's number.

    Each aggregator and each direction has a key of its own. A datagram that is copied to another
    aggregator, or sent back, proves nothing.
    """
    context = epoch.to_bytes(4, "big") + number.to_bytes(4, "big")
    return WayKeys(*(derive(key, f"datagrams {way}", context) for way in ("up", "down")))
