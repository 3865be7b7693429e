"""The interface of meeting places, where a job's ranks exchange records, and its errors."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

from sparsewire.errors import Error, ProtocolError, Timeout
from sparsewire.meeting.contact.dial import name_ranks

_SIZE = struct.Struct("!I")


class Place(Protocol):
    """A place where all ranks give each other a record, as often as all of them call it."""

    def all_gather(self, record: bytes) -> Generator[bytes]:
        """Give every rank the records of all: in the order of the ranks, each once it is there.

        A caller closes the generator at a record of no use. The others shall see that record, too.
        Rank 0, which may host the place, is through only when all others are. Raises Timeout that
        names all missing ranks, or Error, at once, where the place is lost.
        """

    def fail(self, error: BaseException) -> None:
        """Tell those that wait here why this rank leaves, where the place can."""

    def close(self) -> None:
        """Leave, and end what this rank hosts."""


@contextmanager
def attended(place: Place) -> Iterator[Place]:
    """Hold the place until the ranks have met. If this rank fails, the others hear why."""
    with closing(place):
        try:
            yield place
        except BaseException as error:
            place.fail(error)
            raise


def join_records(records: Sequence[bytes]) -> bytes:
    """Many records as one, so that rank 0 gives each rank those of all in one message."""
    return b"".join(_SIZE.pack(len(record)) + record for record in records)


def split_records(joined: bytes) -> list[bytes]:
    """Undo `join_records`; raises ProtocolError for anything that it did not make."""
    records, at = [], 0
    while at + _SIZE.size <= len(joined):
        (size,) = _SIZE.unpack_from(joined, at)
        at += _SIZE.size + size
        records.append(joined[at - size : at])
    if at != len(joined):
        raise ProtocolError(
            "there is something else where the records of all ranks should be: install the same "
            "version of sparsewire on all ranks, and have them meet in a fresh place"
        )
    return records


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
