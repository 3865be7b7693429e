"""What tests need of an MPI: its mpirun, and how to start ranks with it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
MPIRUN = shutil.which("mpirun", path=PATH)

# Open MPI refuses root, and more ranks than cores, unless it is told; MPICH needs nothing.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PATH": PATH,
}


def require_mpi() -> None:
    """Skip the test where there is no MPI."""
    if MPIRUN is None or importlib.util.find_spec("mpi4py") is None:
        reason = "no mpirun or no mpi4py: pip install mpich mpi4py"
        # CI installs both, so there their absence is an error.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
