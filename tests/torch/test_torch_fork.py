"""Forked children of ranks, such as workers of a DataLoader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from loader_death import SLOW_ITEM_S, killed_amid_training
from ranks import Failure, Ranks

NewRanks = Callable[..., Ranks]


@pytest.mark.parametrize("victim", [0, 2])
def test_death_is_seen_although_loader_workers_live(
    new_ranks: NewRanks, victim: int, tmp_path: Path
) -> None:
    outcomes = new_ranks(3).outcomes(killed_amid_training, victim, str(tmp_path / "note"))
    assert isinstance(outcomes.pop(victim), Failure)
    for outcome in outcomes:
        assert not isinstance(outcome, Failure), outcome.text
        named, seconds = outcome
        assert named == victim
        assert seconds < SLOW_ITEM_S / 2, "seen only when the workers ended"


SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
import sparsewire.torch

dist.init_process_group("sparsewire")
other = dist.new_group()
work = dist.all_reduce(torch.ones(100_000), async_op=True)
work.get_future().then(lambda _: None)

def is_refused(call):
    try:
        call()
    except sparsewire.Error as error:
        told = str(error)
        return (
            "this process group belongs to the parent process" in told
            and 'the method "spawn"' in told
            and "init_process_group" in told
            and "sparsewire.init" not in told
        )

def becomes_a_rank():
    # As the error says.
    dist.destroy_process_group()
    dist.init_process_group("sparsewire", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.tolist() == [1, 1, 1]

child = os.fork()
if child == 0:
    calls = [
        lambda: dist.all_reduce(torch.ones(3)),
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.int8)),
        lambda: dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(3), group=other),
        work.wait,
    ]
    sys.exit(5 if all([is_refused(call) for call in calls]) and becomes_a_rank() else 6)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
work.wait()
dist.barrier()
dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(3), group=other)
dist.destroy_process_group()
os._exit(0)  # the child's end is what counts
"""


@pytest.mark.timeout(150)
def test_a_child_is_refused_and_ends_as_a_script_does(free_port: int) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, **place, "RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]
    try:
        assert [rank.wait(100) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
