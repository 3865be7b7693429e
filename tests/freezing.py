"""Ranks that freeze, those that thaw them, and collectives to be in the middle of meanwhile."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from meeting import MEETING_PLACE

import sparsewire

LENGTH = 400_000
READ = 20_000_000
KINDS = ["dense", "sparse", "large"]


def inputs(comm: sparsewire.Communicator, kind: str, step: int) -> Any:
    random = np.random.default_rng([comm.rank, step])
    if kind == "reader" and comm.rank == comm.world_size - 1:
        # It contributes nothing, so no window stops it, and only reads what owners send.
        return np.zeros(READ, np.float32)
    if kind in ("dense", "reader", "idle"):
        return random.standard_normal(READ if kind == "reader" else LENGTH, np.float32)
    # A large one takes all_gather, whose messages pile up in front of a rank that stopped.
    named = LENGTH // (2 if kind == "large" else 20)
    indices = np.sort(random.choice(LENGTH, named, replace=False)).astype(np.int32)
    values = random.standard_normal(named).astype(np.float32)
    return sparsewire.SparseVector(indices, values, length=LENGTH)


def call(comm: sparsewire.Communicator, kind: str, x: Any) -> Any:
    """A collective of one of the inputs, without a limit on its time."""
    if kind == "large" and not comm.has_aggregators:
        return comm.all_gather(x, timeout=math.inf)
    return comm.all_reduce(x, timeout=math.inf)


def pid_file(rank: int) -> Path:
    return Path(os.environ[MEETING_PLACE], f"pid-{rank}")


def freeze_self() -> None:
    """Stop until another rank calls `thaw`."""
    pid_file(int(os.environ["RANK"])).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def thaw(rank: int) -> None:
    os.kill(int(pid_file(rank).read_text()), signal.SIGCONT)


def await_frozen(rank: int) -> None:
    deadline = time.monotonic() + 20
    while not pid_file(rank).exists() or state_of(int(pid_file(rank).read_text() or 0)) != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def freeze_soon(seconds: float) -> None:
    """Have this process stop after so long, wherever it is then, and note when."""

    def wait_and_freeze() -> None:
        time.sleep(seconds)
        frozen_file().write_text(str(time.time()))
        freeze_self()

    threading.Thread(target=wait_and_freeze, daemon=True).start()


def frozen_file() -> Path:
    return Path(os.environ[MEETING_PLACE], "frozen-at")
