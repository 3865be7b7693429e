"""What an aggregator is called in its job, and by which keys its datagrams are sealed."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire.meeting.contact.handshake import derive

_ABOVE_RACKS = 0xFFFF


def aggregator_number(index: int, rack: int = 0) -> int:
    """What one of a job's aggregators is called, and no other one of the job.

    By its place in the list of each rank, and by its rack, where there are racks.
    """
    return index << 16 | rack


def number_above(number: int) -> int:
    """What the parent of a rack's aggregator is called."""
    return number | _ABOVE_RACKS


def is_above_racks(number: int) -> bool:
    """Whether one that is called so has racks' aggregators for workers."""
    return number & _ABOVE_RACKS == _ABOVE_RACKS


class WayKeys(NamedTuple):
    """The keys of datagrams between one aggregator and its workers."""

    up: bytes
    """From the workers to the aggregator."""
    down: bytes

    def __repr__(self) -> str:
        return "WayKeys()"


def datagram_keys(key: bytes, epoch: int, number: int) -> WayKeys:
    """From the key of a job's connections, and the number of the aggregator.

    All aggregators have others, and so has each direction: what was said to one of them is worth
    nothing at another, nor sent back.
    """
    context = epoch.to_bytes(4, "big") + number.to_bytes(4, "big")
    return WayKeys(*(derive(key, f"datagrams {way}", context) for way in ("up", "down")))
