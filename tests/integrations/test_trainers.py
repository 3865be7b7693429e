"""Each trainer's example trains on the engine, and to the bits that gloo gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from trainers import EXAMPLES, ended, run, said, start, torchrun

pytestmark = pytest.mark.timeout(600)

# An epoch's gradients: each of its steps takes one collective at least.
STEPS = 10
ACCELERATE = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2"]
PATIENCE = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "240"}

EVERY = {
    "torch_ddp": ["python", EXAMPLES / "torch_ddp.py"],
    "torchrun": torchrun(EXAMPLES / "torch_ddp.py"),
    "small_gpt": torchrun(EXAMPLES / "small_gpt.py"),
    "lightning": ["python", EXAMPLES / "lightning_ddp.py"],
    "accelerate": [*ACCELERATE, EXAMPLES / "accelerate_ddp.py"],
    "transformers": torchrun(EXAMPLES / "transformers_trainer.py"),
    "ray": ["python", EXAMPLES / "ray_train.py"],
    "torchft": ["python", EXAMPLES / "torchft_ddp.py"],
}


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY)
def test_gradients_travel_on_the_engine(command: Sequence[str | Path], free_port: int) -> None:
    place = {"MASTER_PORT": str(free_port), **PATIENCE}
    ours, theirs = run(*command, "sparsewire", **place), run(*command, "gloo", **place)
    assert ours.by_the_engine >= STEPS
    assert theirs.by_the_engine == 0
    assert ours.parameters == theirs.parameters


UNCHANGED = ("torch_ddp", "accelerate", "transformers", "ray")


@pytest.mark.parametrize("name", UNCHANGED)
def test_scripts_that_name_gloo(name: str, free_port: int) -> None:
    said = run(
        *EVERY[name],
        "gloo",
        SPARSEWIRE_INSTEAD_OF="gloo",
        MASTER_PORT=str(free_port),
        **PATIENCE,
    )
    assert said.by_the_engine >= STEPS


def test_fsdp2() -> None:
    sharded, hybrid, gloo = (
        run(*torchrun(EXAMPLES / "fsdp2.py"), *arguments)
        for arguments in (["sparsewire"], ["sparsewire", "hybrid"], ["gloo"])
    )
    assert sharded.parameters == hybrid.parameters == gloo.parameters
    # Only what hosts add up is a sum of whole tensors.
    assert hybrid.by_the_engine >= STEPS


def test_torchft_loses_a_replica() -> None:
    command = EVERY["torchft"]
    broken, whole = run(*command, "sparsewire", "lose"), run(*command, "gloo")
    assert broken.parameters == whole.parameters
    assert "PeerLost" in broken.output


def test_torchrun_starts_again(tmp_path: Path) -> None:
    command = torchrun("--max-restarts", "1", EXAMPLES / "elastic.py", tmp_path)
    again = run(*command)
    assert "rank 1 goes on at step 5" in again.output
    assert "PeerLost" in again.output
    assert again.by_the_engine >= STEPS // 2
    # torchft's example deals out the items alike, and nobody dies in it.
    assert again.parameters == run(*EVERY["torchft"], "gloo").parameters


LAUNCHERS = {
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


@pytest.mark.parametrize("variables", LAUNCHERS.values(), ids=LAUNCHERS)
def test_variables_of_launchers(variables: tuple[str, str, str], free_port: int) -> None:
    rank, size, local_rank = variables
    ranks = [
        start(
            "python",
            EXAMPLES / "launchers.py",
            MASTER_PORT=str(free_port),
            **{rank: str(number), size: "2", local_rank: str(number)},
        )
        for number in range(2)
    ]
    assert said(*map(ended, ranks)).by_the_engine >= STEPS


def test_lightning_under_slurm(free_port: int) -> None:
    job = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "localhost",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port),
    }
    ranks = [
        start(*EVERY["lightning"], SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), **job)
        for rank in range(2)
    ]
    assert said(*map(ended, ranks)).by_the_engine >= STEPS
