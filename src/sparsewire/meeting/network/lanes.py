"""How many lanes ranks take where SPARSEWIRE_LANES leaves it to them: pure, from what all tell.

A lane is a thread, and pays where its link is faster than one thread, and a processor is free for
it. Every rank computes every rank's proposal from the same records, and all take the least.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from sparsewire.meeting.network.resources import Resources

LANE_MBIT = 5000
"""Mbit/s of a link for each lane: a second lane gains nothing on a slower link."""
LANES_AUTO_MAX = 8
LANES_LOCAL_MAX = 4
"""The most lanes if all ranks are on one host: so many keep its memory busy."""


class Lanes(NamedTuple):
    """A number of lanes, and why it is no other one."""

    number: int
    why: str


def lanes_of(resources: Sequence[Resources]) -> Lanes:
    """The lanes of all ranks: the least of their proposals. `resources` are in rank order.

    All ranks have the same number of interfaces. Raises ValueError for what is no mask.
    """
    return min(proposals(resources), key=lambda lanes: lanes.number)


def proposals(resources: Sequence[Resources]) -> list[Lanes]:
    """The lanes that each rank proposes."""
    beside = Counter(each.host for each in resources)
    return [
        _proposal(each, share, beside[each.host], len(beside) > 1)
        for each, share in zip(resources, _shares(resources), strict=True)
    ]


def processors_of(resources: Sequence[Resources], rank: int, lanes: int) -> list[int]:
    """The processor of each lane of a rank; none if the lanes may run on any.

    Ranks that may run on the same processors get equally many, in the order of the ranks. The
    system chooses for a single lane, if no further processor is left for the rank's program, if
    control groups limit its time, and if ranks share only some of their processors.
    """
    own = resources[rank]
    crowd = [number for number, each in enumerate(resources) if _shares_processors(each, own)]
    cores = list(cores_of(own.processors))
    each = len(cores) // len(crowd)
    alike = all(resources[number].processors == own.processors for number in crowd)
    if lanes == 1 or each <= lanes or own.quota or not alike:
        return []
    first = crowd.index(rank) * each
    return cores[first : first + lanes]


def _shares_processors(a: Resources, b: Resources) -> bool:
    return a.machine == b.machine and bool(int(a.processors, 16) & int(b.processors, 16))


def _proposal(resources: Resources, share: float, beside: int, has_link: bool) -> Lanes:
    """The proposal of a rank with `share` processors and `beside` ranks on its host."""
    # The program itself has one of the processors.
    free = max(1, (math.floor(share) - 1) // resources.interfaces)
    speed_mbit = resources.speed_mbit / beside
    useful = max(1, math.ceil(speed_mbit / LANE_MBIT)) if has_link else LANES_LOCAL_MAX
    most = max(1, LANES_AUTO_MAX // resources.interfaces)
    each = min(free, useful, most)
    if each == free:
        why = f"a rank has {share:.3g} processors, one of them for the program"
    elif each == most:
        why = f"not more than {LANES_AUTO_MAX} without being asked for"
    elif not has_link:
        why = "the memory of one host is busy with so many"
    elif speed_mbit:
        why = f"a rank has a link of {speed_mbit:.0f} Mbit/s; {LANE_MBIT} keep a lane busy"
    else:
        why = "the speed of the link is not known"
    count = resources.interfaces
    over = f", {each} for each of {count} interfaces" if count > 1 else ""
    return Lanes(each * count, why + over)


def _shares(resources: Sequence[Resources]) -> list[float]:
    """How many processors each rank has, where those that may run on one share it evenly."""
    crowds = Counter((each.machine, each.processors) for each in resources)
    users: Counter[tuple[str, int]] = Counter()
    for (machine, mask), ranks in crowds.items():
        users.update({(machine, core): ranks for core in cores_of(mask)})
    shares = {
        (machine, mask): float(sum(Fraction(1, users[machine, core]) for core in cores_of(mask)))
        for machine, mask in crowds
    }
    beside = Counter(each.host for each in resources)
    return [
        min(shares[each.machine, each.processors], each.quota / beside[each.host] or math.inf)
        for each in resources
    ]


def cores_of(mask: str) -> Iterator[int]:
    """The numbers of the processors in a mask, in order."""
    return (number for number, bit in enumerate(reversed(f"{int(mask, 16):b}")) if bit == "1")
