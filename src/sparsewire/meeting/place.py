"""What a meeting place does for the ranks of a job, and the errors where it cannot."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from sparsewire.errors import Error, Timeout
from sparsewire.meeting.mesh import name_ranks


class Place(Protocol):
    """Where all ranks give each other a record, as often as all of them call it."""

    def all_gather(self, record: bytes) -> Generator[bytes]:
        """Give every rank the records of all: in the order of the ranks, each once it is there.

        Who closes the generator has found a record of no use: the others shall see that one, too.
        Rank 0, which may host the place, is through only when all others are. Raises Timeout that
        names all missing ranks, or Error, at once, where the place is lost.
        """

    def close(self) -> None:
        """Leave, and end what this rank hosts."""


def absent(ranks: Sequence[int], reason: object) -> Timeout:
    return Timeout(
        f"{name_ranks(ranks)} did not show up where the ranks meet: look there for an earlier "
        f"error, or for another MASTER_ADDR, MASTER_PORT or WORLD_SIZE ({reason})"
    )


def lost(reason: object) -> Error:
    return Error(
        f"lost the place where the ranks meet: {reason}. Look at the rank or the launcher that "
        "hosts it for an earlier error"
    )
