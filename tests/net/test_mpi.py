"""Ranks that mpirun starts meet over MPI; needs an MPI, as `pip install mpich mpi4py` gives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mpirun import ENVIRONMENT, MPIRUN, require_mpi

FOLDER = Path(__file__).parent


@pytest.fixture(autouse=True)
def has_mpi() -> None:
    require_mpi()


def mpirun(ranks: int, *command: str, **environment: str) -> str:
    """What `ranks` processes of a Python script print; an exception in one of them ends all."""
    assert MPIRUN is not None
    process = subprocess.Popen(
        [MPIRUN, "-n", str(ranks), sys.executable, "-m", "mpi4py", *command],
        env={**os.environ, **ENVIRONMENT, **environment},
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


@pytest.mark.parametrize("ranks", [1, 3, pytest.param(4, marks=pytest.mark.exhaustive)])
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
        "interrupted_halfway",
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
