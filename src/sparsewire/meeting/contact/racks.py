"""Racks: groups of ranks with an aggregator of their own, which is a worker of the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsewire.errors import MismatchError


@dataclass(frozen=True)
class RackPlace:
    """The number of a rank among its aggregator's workers, and of the aggregator among the root's.

    Without racks, all ranks are in rack 0.
    """

    worker: int
    workers: int
    rack: int
    racks: int


def rack_place(names: Sequence[str], rank: int) -> RackPlace:
    """A rank's place, from the names of all ranks' racks.

    Ranks are counted in order, racks in the order of their first ranks.
    """
    racks = list(dict.fromkeys(names))
    beside = [other for other, name in enumerate(names) if name == names[rank]]
    return RackPlace(beside.index(rank), len(beside), racks.index(names[rank]), len(racks))


def check_racks(names: Sequence[str], aggregators: Sequence[str]) -> None:
    """Raise MismatchError unless each rack has one aggregator, and no two have the same."""
    first: dict[str, int] = {}
    owner: dict[str, int] = {}
    for rank, (name, own) in enumerate(zip(names, aggregators, strict=True)):
        beside = first.setdefault(name, rank)
        if aggregators[beside] != own:
            raise MismatchError(
                f"ranks {beside} and {rank} are both in rack {name!r}, and name the aggregators "
                f"{aggregators[beside]} and {own}. Advice: set SPARSEWIRE_AGGREGATORS alike on all "
                "ranks of a rack"
            )
        other = owner.setdefault(own, rank)
        if own and names[other] != name:
            raise MismatchError(
                f"racks {names[other]!r} and {name!r} have the same aggregator {own}. Advice: "
                "start one for each rack, with `sparsewire aggregator --parent`"
            )
