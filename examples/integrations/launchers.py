"""DDP under Open MPI, MPICH, Slurm or torchrun: each names the ranks in variables of its own.

    mpirun -n 2 python examples/integrations/launchers.py
    srun -n 2 python examples/integrations/launchers.py

Across machines MASTER_ADDR is the name of rank 0's. torch reads torchrun's variables only, so the
script translates; `sparsewire.init()` reads all of them by itself.
"""

import os
import sys

from torch_ddp import main

LAUNCHERS = {
    "RANK": ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"],
    "WORLD_SIZE": ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"],
    "LOCAL_RANK": ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"],
}


def translate() -> None:
    """Set torchrun's variables where the launcher is another one."""
    for name, others in LAUNCHERS.items():
        found = [os.environ[other] for other in others if other in os.environ]
        os.environ.setdefault(name, found[0] if found else "0")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")


if __name__ == "__main__":
    translate()
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
