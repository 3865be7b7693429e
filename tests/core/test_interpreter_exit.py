"""A script may end with threads of its own, or callbacks, still inside the engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Rank 1 never joins what rank 0 waits for, and ends after it.
SCRIPT = """
import sys, threading, time
import numpy as np
import sparsewire

variant = sys.argv[1]
comm = sparsewire.init(world_size=2)

def start(target):
    threading.Thread(target=target, daemon=True).start()

def wait_for_ever():
    while True:
        try:
            comm.all_reduce(np.ones(10), async_op=True).wait()
        except sparsewire.Error:
            pass

def meet_for_ever():
    while True:
        try:
            comm.barrier()
        except sparsewire.Error:
            pass

if "callbacks" in variant:
    for _ in range(5):
        work = comm.all_reduce(np.ones(10), async_op=True)
        work.add_done_callback(lambda _: time.sleep(0.1))
if "barrier" in variant:
    start(meet_for_ever)
if "wait" in variant and comm.rank == 0:
    for _ in range(4): start(wait_for_ever)
time.sleep(0.05)
if comm.rank == 1:
    sys.stdin.read()
if "close" in variant:
    comm.close()
print("the end", flush=True)
"""


def start_rank(rank: int, variant: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, variant],
        env={
            "PATH": "/usr/bin:/bin",
            "SPARSEWIRE_RENDEZVOUS": f"file://{directory}",
            "RANK": str(rank),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def complaints(logged: str) -> list[str]:
    """All but the word that a rank starts slowly, which it may do on a busy machine."""
    return [line for line in logged.splitlines() if " of 2 waits for rank " not in line]


def check_ends_well(variant: str, directory: Path) -> None:
    ranks = [start_rank(rank, variant, directory) for rank in range(2)]
    try:
        for rank in ranks:
            said, logged = rank.communicate(timeout=60)
            assert (rank.returncode, said, complaints(logged)) == (0, "the end\n", [])
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "variant",
    ["wait", "barrier", "callbacks", "wait+close", "wait+barrier+callbacks+close"],
)
@pytest.mark.parametrize("repeats", [2, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_threads_inside_the_engine_do_not_disturb_the_end(
    variant: str, repeats: int, tmp_path: Path
) -> None:
    for repeat in range(repeats):
        check_ends_well(variant, tmp_path / str(repeat))
