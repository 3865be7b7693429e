"""How workers give each other their encoded messages: in one process, or over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress.message import framed, unframed


class Network(Protocol):
    """n workers, of which this process plays some. Every process hears all messages."""

    workers: int
    """n, over all processes."""
    local: Sequence[int]
    """The workers that this process plays, ascending."""

    def all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        """Give everybody the messages of all n workers, in their order; collective.

        `messages` are those of the local workers, in order. They may differ in length and be
        empty.
        """


class Simulated:
    """All workers in this process."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"there must be at least one worker, not {workers}")
        self.workers = workers
        self.local: Sequence[int] = range(workers)

    def all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        _check_count(messages, self.local)
        return list(messages)


class Distributed:
    """One worker per rank of a communicator. Only the encoded messages cross the wire.

    `all_gather` raises what the communicator's `all_gather` raises.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self.workers = comm.world_size
        self.local: Sequence[int] = range(comm.rank, comm.rank + 1)

    def all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        _check_count(messages, self.local)
        (message,) = messages
        vectors = self._comm.all_gather(framed(message))
        return [unframed(vector.indices, vector.values) for vector in vectors]


def _check_count(messages: Sequence[bytes], local: Sequence[int]) -> None:
    if len(messages) != len(local):
        raise ValueError(f"{len(local)} local workers send {len(messages)} messages")
