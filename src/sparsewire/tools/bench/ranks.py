"""A benchmark's ranks, as each sees the others: in step, and told what rank 0 makes of their words.

Beside what is measured, and without it: connections of their own, all with rank 0.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from sparsewire.errors import ExperimentError
from sparsewire.meeting.places.place import join_records, split_records
from sparsewire.tools.bench.patterns import Array

_PAUSE_S = 0.02
_RANK_BYTES = 4

Address = tuple[str, int]
Decide = Callable[[list[bytes]], bytes]


class Ranks:
    """All ranks of a job. Every method is collective, and raises ExperimentError where one goes."""

    def __init__(self, rank: int, others: list[Connection], size: int, timeout: float) -> None:
        """`others` are those that this rank talks with: of rank 0 all, in order, else rank 0."""
        self.rank, self.size = rank, size
        self._others, self._timeout = others, timeout

    @classmethod
    def meet(cls, timeout: float) -> Ranks:
        """Meet where the launcher's environment says; nobody listens there any more afterwards."""
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        key = os.environ["SPARSEWIRE_SECRET"].encode()
        if rank == 0:
            others = _hosted(address, key, size, timeout)
        else:
            others = [_dialled(address, key, rank, time.monotonic() + timeout)]
        ranks = cls(rank, others, size, timeout)
        ranks.barrier()
        return ranks

    def agree(self, own: bytes, decide: Decide) -> bytes:
        """Rank 0's decision from all ranks' messages, which it gets in the order of the ranks."""
        if self.rank == 0:
            decision = decide([own, *map(self._heard, range(1, self.size))])
            for other in range(1, self.size):
                self._tell(other, decision)
            return decision
        self._tell(0, own)
        return self._heard(0)

    def barrier(self) -> None:
        """Return once all have come."""
        self.agree(b"", lambda said: b"")

    def gather(self, own: Sequence[float] | Array) -> Array:
        """The numbers of every rank, one row each: as many of the same dtype on all."""
        array = np.asarray(own)
        rows = split_records(self.agree(array.tobytes(), join_records))
        return np.stack([np.frombuffer(row, array.dtype) for row in rows])

    def _heard(self, other: int) -> bytes:
        connection = self._connection(other)
        with _naming(other):
            if connection.poll(self._timeout):
                return connection.recv_bytes()
        raise ExperimentError(f"rank {other} has not come within {self._timeout:g} s")

    def _tell(self, other: int, words: bytes) -> None:
        with _naming(other):
            self._connection(other).send_bytes(words)

    def _connection(self, other: int) -> Connection:
        return self._others[max(other - 1, 0)]


@contextlib.contextmanager
def _naming(other: int) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as error:
        raise ExperimentError(f"rank {other} is gone: look there for an earlier error") from error


def _dialled(address: Address, key: bytes, rank: int, deadline: float) -> Connection:
    """The connection of another rank with rank 0, which may start later."""
    while True:
        with contextlib.suppress(OSError, EOFError):
            connection = Client(address, authkey=key)
            connection.send_bytes(rank.to_bytes(_RANK_BYTES, "big"))
            return connection
        if time.monotonic() >= deadline:
            raise ExperimentError("rank 0 did not start: look there for an earlier error")
        time.sleep(_PAUSE_S)


def _hosted(address: Address, key: bytes, size: int, timeout: float) -> list[Connection]:
    """The connections of rank 0 with all others, in order; strangers are shown the door.

    One that says nothing holds up the others, but no longer than the time limit.
    """
    found: dict[int, Connection] = {}
    listener = Listener(address, backlog=size, authkey=key)
    doorkeeper = threading.Thread(target=_let_in, args=(listener, found, size), daemon=True)
    doorkeeper.start()
    doorkeeper.join(timeout)
    if missing := [str(rank) for rank in range(1, size) if rank not in found]:
        raise ExperimentError(
            f"rank {', '.join(missing)} did not come within {timeout:g} s: look there for an "
            "earlier error"
        )
    listener.close()
    return [found[rank] for rank in range(1, size)]


def _let_in(listener: Listener, found: dict[int, Connection], size: int) -> None:
    while len(found) < size - 1:
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            connection = listener.accept()
            found[int.from_bytes(connection.recv_bytes(_RANK_BYTES), "big")] = connection
