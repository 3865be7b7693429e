"""Ranks that meet over an MPI communicator, by MPI's own collectives.

Needs mpi4py, which is never imported before the caller has. Only bytes travel, nothing is pickled,
and nothing blocks: MPI's own calls have no time limit, so every wait here tests and sleeps.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Generator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from sparsewire.errors import Error, Timeout
from sparsewire.meeting.contact.dial import name_ranks
from sparsewire.meeting.contact.waiting import told

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

_POLL_FIRST_S = 0.0005
_POLL_MAX_S = 0.01


def as_mpi(store: object) -> Intracomm | None:
    """Return `store` if it is an MPI communicator, None if it is anything else.

    Raises ValueError for a communicator that cannot be used.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(store, mpi.Comm):
        return None
    if mpi.Is_finalized():
        raise ValueError("MPI is finalized already: call sparsewire.init before MPI.Finalize")
    try:
        is_inter = store.Is_inter()
    except mpi.Exception as error:
        raise ValueError(
            "this MPI communicator is null or was freed: pass one that lives, and leave out "
            "sparsewire.init on ranks that are not part of it"
        ) from error
    if is_inter:
        raise ValueError(
            "this is an MPI inter-communicator, in which two groups number their ranks apart: "
            "pass an intra-communicator, such as its Merge()"
        )
    comm: Intracomm = store
    return comm


def mpi_ranks(comm: Intracomm, rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank and size of `comm`; raises ValueError where the arguments say something else."""
    for name, argument, actual in (
        ("rank", rank, comm.Get_rank()),
        ("world_size", world_size, comm.Get_size()),
    ):
        if argument not in (None, actual):
            raise ValueError(
                f"{name}={argument}, but the MPI communicator says {actual}: leave out {name}="
            )
    return comm.Get_rank(), comm.Get_size()


def mpi_place(comm: Intracomm, deadline: float) -> MpiPlace:
    """The meeting place of the ranks of `comm`, until `deadline` on the monotonic clock."""
    place = comm.Get_attr(_attribute())
    if not isinstance(place, MpiPlace):
        place = MpiPlace(comm)
        comm.Set_attr(_attribute(), place)
    place.deadline = deadline
    return place


class MpiPlace:
    """One rank's part in the meetings over a communicator. It is kept with the communicator.

    MPI cannot take a collective back: the next meeting ends one that was begun as time ran out.
    """

    def __init__(self, comm: Intracomm) -> None:
        self.deadline = 0.0
        self._comm = comm
        self._roll: list[Request] = []
        self._barrier: Request | None = None
        self._gathering: Request | None = None
        self._late: list[int] = []

    def all_gather(self, record: bytes) -> Generator[bytes]:
        """As `Place.all_gather`. The call may be repeated after a Timeout that names ranks."""
        from mpi4py import MPI

        if self._gathering is not None:
            raise Error(
                "an earlier sparsewire.init with this MPI communicator ended halfway on some "
                "rank: pass a duplicate of it, made by Dup()"
            )
        with told(self._comm.Get_rank(), self._comm.Get_size(), self._awaited):
            self._await_all()
        counts = array("i", bytes(4 * self._comm.Get_size()))
        own_count = array("i", [len(record)])
        self._finish(self._comm.Iallgather([own_count, MPI.INT], [counts, MPI.INT]))
        records = bytearray(sum(counts))
        self._finish(self._comm.Iallgatherv([record, MPI.BYTE], [records, counts, MPI.BYTE]))
        for count, end in zip(counts, accumulate(counts), strict=True):
            yield bytes(records[end - count : end])

    def fail(self, error: BaseException) -> None:
        """Collectives carry no such word: the others find out by the time limit."""

    def close(self) -> None:
        """The communicator is its maker's."""

    def _await_all(self) -> None:
        """Return once all ranks are here, and each knows that."""
        if not self._roll:
            self._roll = _call_roll(self._comm)
        self._wait(lambda: not self._absent())
        if absent := self._absent():
            raise Timeout(
                f"{name_ranks(absent)} did not call sparsewire.init with the same MPI "
                "communicator in time: look there for an earlier error"
            )
        # A rank that gave up before the last one came goes on from here when it calls again.
        if self._barrier is None:
            self._barrier = self._comm.Ibarrier()
        for collective in (self._barrier, *self._roll):
            self._end(collective)
        self._roll, self._barrier = [], None

    def _absent(self) -> list[int]:
        # The own request says nothing about others.
        waiting = [rank for rank, arrival in enumerate(self._roll) if not arrival.Test()]
        self._late = [rank for rank in waiting if rank != self._comm.Get_rank()]
        return self._late

    def _awaited(self) -> str:
        """The awaited ranks, for a thread that may not call MPI."""
        if not (late := self._late):
            return ""
        return f"{name_ranks(late)} to call sparsewire.init with the same MPI communicator"

    def _finish(self, gathering: Request) -> None:
        """Wait for a collective that no later meeting could go on with."""
        self._gathering = gathering
        self._end(gathering)
        self._gathering = None

    def _end(self, collective: Request) -> None:
        if not self._wait(collective.Test):
            raise Timeout(
                "some rank gave up before all had called sparsewire.init: look for the first "
                "error of the other ranks, or allow more time with timeout="
            )

    def _wait(self, done: Callable[[], bool]) -> bool:
        """Whether `done` comes true in time."""
        pause = _POLL_FIRST_S
        while not done():
            if time.monotonic() >= self.deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _POLL_MAX_S)
        return True


def _call_roll(comm: Intracomm) -> list[Request]:
    """Tell all ranks that this one is here; request r of the result ends once rank r is, too.

    Collectives cannot be mixed up with messages of the program. In a scatter with counts only the
    root knows the counts, so it sends to each rank itself, and no absent rank is in between.
    """
    from mpi4py import MPI

    size, here = comm.Get_size(), b"\1"
    requests = []
    for root in range(size):
        mine = None
        if root == comm.Get_rank():
            mine = (here * size, [1] * size, list(range(size)), MPI.BYTE)
        requests.append(comm.Iscatterv(mine, [bytearray(1), MPI.BYTE], root))
    return requests


@cache
def _attribute() -> int:
    """The key under which MPI keeps a place with its communicator."""
    from mpi4py import MPI

    return MPI.Comm.Create_keyval()
