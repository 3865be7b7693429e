"""Ranks that mpirun starts meet over MPI; needs an MPI, as `pip install mpich mpi4py` gives."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
MPIRUN = shutil.which("mpirun", path=PATH)

# Open MPI refuses root, and more ranks than cores, unless it is told; MPICH needs nothing.
PERMISSIONS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


@pytest.fixture(autouse=True)
def has_mpi() -> None:
    if MPIRUN is None or importlib.util.find_spec("mpi4py") is None:
        reason = "no mpirun or no mpi4py: pip install mpich mpi4py"
        # CI installs both, so there their absence is an error.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def mpirun(ranks: int, *command: str, **environment: str) -> str:
    """What `ranks` processes of a Python script print; an exception in one of them ends all."""
    assert MPIRUN is not None
    process = subprocess.Popen(
        [MPIRUN, "-n", str(ranks), sys.executable, "-m", "mpi4py", *command],
        env={**os.environ, **PERMISSIONS, "PATH": PATH, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output = process.communicate(timeout=40)[0]
    except BaseException:
        # Killed outright, mpirun would leave its ranks behind.
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
        raise
    assert process.returncode == 0, output
    return output


def run_ranks(ranks: int, function: str, **environment: str) -> None:
    output = mpirun(ranks, str(FOLDER / "mpi_ranks.py"), function, **environment)
    assert output.count("passed") == ranks, output


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_world(ranks: int) -> None:
    run_ranks(ranks, "world")


@pytest.mark.parametrize(
    "function",
    [
        "several_at_once",
        "beside_messages",
        "after_finalize",
        "large_records",
        "late_rank",
        "missing_at_a_later_init",
        "ranks_that_never_come",
        "mismatch",
        "refused",
    ],
)
def test_four_ranks(function: str) -> None:
    run_ranks(4, function)


def test_launcher_without_communicator(tmp_path: Path) -> None:
    run_ranks(3, "launched", SPARSEWIRE_RENDEZVOUS=f"file://{tmp_path}")


def test_example() -> None:
    output = mpirun(3, str(FOLDER.parents[1] / "examples" / "mpi_all_reduce.py"))
    assert "non-zero rows of the sum: 0, 1, 2, 9999; the last one is 3" in output
