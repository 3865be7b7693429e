"""Reads a launcher's environment: a rank's number, the ranks' meeting place, and the restart.

Torchrun's names come first, then those of mpirun, of other process managers, and of srun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD_SIZE_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")

Environment = Mapping[str, str]


class Master(NamedTuple):
    """The address at which rank 0 listens, as text. A part that no launcher has set is ""."""

    host: str
    port: str


def is_launched(environment: Environment) -> bool:
    """Whether torchrun, mpirun or srun has made this process a rank."""
    return any(name in environment for name in RANK_NAMES)


def is_by_mpi(environment: Environment) -> bool:
    """Whether mpirun alone has started this rank: it gives ranks numbers, but no address."""
    return "RANK" not in environment and any(name in environment for name in _MPI_RANKS)


def master(environment: Environment) -> Master:
    """MASTER_ADDR and MASTER_PORT."""
    return Master(environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", ""))


def has_agent(environment: Environment) -> bool:
    """Whether torchrun's agent holds the port of the master, with a store that outlives ranks."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def attempt(environment: Environment) -> str:
    """The name of this start of the job, which torchrun may repeat."""
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    return f"{run}/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
