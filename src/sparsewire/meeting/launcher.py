"""Finds out whether a launcher made this process a rank, and joins the others."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sparsewire.communicator import Communicator
from sparsewire.meeting.connect import init
from sparsewire.options import RANK_NAMES

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
_MEETING_POINTS = ("MASTER_ADDR", "SPARSEWIRE_RENDEZVOUS")


def is_launched() -> bool:
    """Whether torchrun, mpirun or srun has made this process a rank."""
    return any(name in os.environ for name in RANK_NAMES)


def join() -> Communicator:
    """Connect with the other ranks of the launcher, or be the only one; raises as `init` does."""
    if is_launched():
        return init(_mpi_world())
    return init(rank=0, world_size=1)


def _mpi_world() -> Intracomm | None:
    """Where the ranks meet under mpirun, which tells them who they are, but no address."""
    by_mpi = any(name in os.environ for name in _MPI_RANKS) and "RANK" not in os.environ
    if not by_mpi or any(name in os.environ for name in _MEETING_POINTS):
        return None
    if find_spec("mpi4py") is None:
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD
