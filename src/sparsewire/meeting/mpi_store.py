"""A store over an MPI communicator: what one rank sets is sent to all others.

Needs mpi4py, which is never imported before the caller has. Only bytes travel, nothing is pickled,
and nothing blocks: MPI's own calls have no time limit, so every wait here tests and sleeps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from sparsewire.errors import Timeout
from sparsewire.meeting.mesh import name_ranks

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Intracomm, Request

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


def mpi_store(comm: Intracomm, timeout: float) -> MpiStore:
    """The store of `comm`, made on first use; a collective call.

    Raises Timeout that names the ranks that do not call this within `timeout` seconds, which is
    also the limit for each `set` and `get`. The call may be repeated then.
    """
    store = comm.Get_attr(_attribute())
    if not isinstance(store, MpiStore):
        store = MpiStore(comm)
        comm.Set_attr(_attribute(), store)
    store.meet(timeout)
    return store


class MpiStore:
    """One rank's view of the values, and a private communicator to send them.

    It stays with the communicator that it was made for, until that one is freed.
    """

    def __init__(self, comm: Intracomm) -> None:
        self._comm = comm
        self._timeout = 0.0
        self._values: dict[str, bytes] = {}
        self._sends: list[Request] = []
        self._arrivals = _call_roll(comm)
        self._duplicate: tuple[Intracomm, Request] | None = None

    def meet(self, timeout: float) -> None:
        """Return once all ranks are here and share a private communicator."""
        self._timeout = timeout
        self._wait(lambda: not self._absent())
        if absent := self._absent():
            raise Timeout(
                f"{name_ranks(absent)} did not call sparsewire.init with the same MPI "
                f"communicator in {timeout:g} s: look there for an earlier error"
            )
        # Only now: an unfinished duplication may keep MPI from making other communicators.
        if self._duplicate is None:
            self._duplicate = self._comm.Idup()
        if not self._wait(self._duplicate[1].Test):
            raise Timeout(
                "some rank gave up before all had called sparsewire.init: look for the first "
                "error of the other ranks, or allow more time with timeout="
            )

    def set(self, key: str, value: bytes) -> None:
        """Raises Timeout where the value cannot be handed over."""
        from mpi4py import MPI

        self._values[key] = value
        message = key.encode() + b"\0" + value
        comm = self._private
        for rank in range(comm.Get_size()):
            if rank != comm.Get_rank():
                self._sends.append(comm.Isend([message, MPI.BYTE], rank))
        # Nobody may call MPI on this rank later on, so the messages must leave now.
        if not self._wait(self._sent):
            raise Timeout(f"{key!r} could not be sent to all ranks in {self._timeout:g} s")

    def get(self, key: str) -> bytes:
        """Raises Timeout where no rank sends the key."""
        if not self._wait(lambda: self.check([key])):
            raise Timeout(f"no rank sent {key!r} in {self._timeout:g} s")
        return self._values[key]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` are there."""
        self._receive()
        return all(key in self._values for key in keys)

    def free(self) -> None:
        """Give the private communicator back to MPI."""
        if self._duplicate is not None and self._duplicate[1].Test():
            self._private.Free()

    @property
    def _private(self) -> Intracomm:
        assert self._duplicate is not None, "meet comes first"
        return self._duplicate[0]

    def _absent(self) -> list[int]:
        # The own request is tested as well, so that MPI ends it, but it says nothing about others.
        waiting = [rank for rank, arrival in enumerate(self._arrivals) if not arrival.Test()]
        return [rank for rank in waiting if rank != self._comm.Get_rank()]

    def _sent(self) -> bool:
        # Two ranks that send to each other both have to receive meanwhile.
        self._receive()
        self._sends = [send for send in self._sends if not send.Test()]
        return not self._sends

    def _receive(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        while (message := self._private.Improbe(status=status)) is not None:
            data = bytearray(status.Get_count(MPI.BYTE))
            message.Recv([data, MPI.BYTE])
            key, _, value = bytes(data).partition(b"\0")
            self._values[key.decode()] = value

    def _wait(self, done: Callable[[], bool]) -> bool:
        """Whether `done` comes true in time."""
        deadline = time.monotonic() + self._timeout
        pause = _POLL_FIRST_S
        while not done():
            if time.monotonic() >= deadline:
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
    """The key under which MPI keeps a store with its communicator."""
    from mpi4py import MPI

    def forget(comm: Comm, key: int, store: MpiStore) -> None:
        store.free()

    return MPI.Comm.Create_keyval(delete_fn=forget)
