"""What replicas tell each other at a round's beginning, and where each of them stands."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.errors import MismatchError
from sparsewire.torch.outer.agreement import apart


class Part(IntEnum):
    """What a replica does in a round."""

    LATE = 0
    """Its inner steps are not done: it contributes nothing, and keeps its delta."""
    CONTRIBUTES = 1
    OBSERVES = 2
    """It waits for the shared state, and keeps the means of the rounds until then."""
    FLUSHES = 3
    """It gives all that it has not sent, as it is."""
    LEAVES = 4
    """It flushes, and goes."""


GIVING = (Part.CONTRIBUTES, Part.FLUSHES, Part.LEAVES)
"""The parts that move the shared point."""

_ARRIVAL = np.dtype(
    [
        ("part", "<i8"),
        ("round", "<i8"),
        ("digest", "<i8", 2),
        ("moved", "<f8"),
        ("owed", "<f8"),
        ("worked", "<f8"),
        ("wishes", "<i8"),
    ]
)
_STANDING = np.dtype(
    [
        ("committed", "<i8"),
        ("prepared", "<i8"),
        ("has_state", "<i8"),
        ("joined", "<i8"),
        ("stood", "<i8"),
        ("agreement", "<i8"),
    ]
)


class Arrivals:
    """The records of all members for one round, in rank order."""

    def __init__(self, rows: Any, members: Sequence[str]) -> None:
        self.rows = rows
        self.members = members
        self.parts = [Part(int(part)) for part in rows["part"]]

    def names(self, part: Part) -> list[str]:
        return [name for name, each in zip(self.members, self.parts, strict=True) if each is part]

    @property
    def round(self) -> int:
        """The number of this round, as all that have the shared state know it."""
        known = [
            int(row["round"])
            for row, part in zip(self.rows, self.parts, strict=True)
            if part is not Part.OBSERVES
        ]
        return max(known, default=0)

    @property
    def has_wishes(self) -> bool:
        """Whether a replica asks to join."""
        return bool(self.rows["wishes"].any())

    @property
    def contributors(self) -> int:
        return sum(part in GIVING for part in self.parts)

    @property
    def holders(self) -> int:
        """How many members have the shared state."""
        return len(self.parts) - self.parts.count(Part.OBSERVES)

    def worked(self) -> float:
        """The median seconds of inner steps among contributors; 0 if there are none."""
        seconds = [
            float(row["worked"])
            for row, part in zip(self.rows, self.parts, strict=True)
            if part is Part.CONTRIBUTES
        ]
        return float(np.median(seconds)) if seconds else 0.0

    def owed(self) -> dict[str, float]:
        """The norm of what each member owes."""
        return {name: float(row["owed"]) for name, row in zip(self.members, self.rows, strict=True)}

    def drift(self, mean: float) -> float:
        """How far the contributors went apart: the root mean square of |delta_i - mean delta|.

        `mean` is the norm of the mean delta.
        """
        moved = [
            float(row["moved"]) ** 2
            for row, part in zip(self.rows, self.parts, strict=True)
            if part is Part.CONTRIBUTES
        ]
        return max(0.0, float(np.mean(moved)) - mean**2) ** 0.5 if moved else 0.0

    def check(self) -> None:
        """Raise MismatchError, naming who differs, unless shared states are equal."""
        holders = [i for i, part in enumerate(self.parts) if part is not Part.OBSERVES]
        if not holders:
            return
        states = [(int(row["round"]), *row["digest"].tolist()) for row in self.rows[holders]]
        differing, usual = apart(states, [self.members[i] for i in holders])
        if differing:
            raise MismatchError(
                f"the shared state of replica {', '.join(map(repr, differing))} differs from that "
                f"of the others after round {usual[0]}: have all the same outer optimizer, "
                "settings and versions of torch? Let that replica join anew, or load a checkpoint."
            )


def arrive(
    communicator: Communicator, members: Sequence[str], timeout: float, **own: Any
) -> Arrivals:
    """Tell all members this record, and give theirs; a collective call."""
    return Arrivals(_exchanged(communicator, _ARRIVAL, own, timeout), members)


def stand(communicator: Communicator, timeout: float, **own: Any) -> Any:
    """Tell all members where this replica stands, and give where they stand, in rank order.

    `joined` is the last epoch that had this replica, and `stood` the last whose standings it knows.
    If others stood in a later one, they went on without it, and its state is not the shared one.
    """
    rows = _exchanged(communicator, _STANDING, own, timeout)
    rows["has_state"] &= rows["joined"] >= rows["stood"].max()
    return rows


def agreed(communicator: Communicator, is_ready: bool, timeout: float) -> list[bool]:
    """Each member's vote; a collective call."""
    votes = communicator.all_gather(np.array([is_ready], np.int64), timeout=timeout)
    return [bool(vote[0]) for vote in votes]


def _exchanged(communicator: Communicator, dtype: Any, own: Any, timeout: float) -> Any:
    row = np.zeros(1, dtype)
    for name, value in own.items():
        row[name] = value
    rows = communicator.all_gather(row.view(np.int64), timeout=timeout)
    return np.concatenate([each.view(dtype) for each in rows])
