"""Memory beside the tensor is bounded, whatever the tensor's size."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from support import run_ranks

import sparsewire

MIB = 1024 * 1024
# Three dense segments of float32 and one that overshoots.
WINDOW = 1 * MIB


def resident_peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def peak_during_all_reduce(count: int, block_density: float) -> int:
    """Bytes that the resident set grows by at the most, while the tensor is resident already."""
    with sparsewire.init() as comm:
        keep = np.random.default_rng(comm.rank).random(count // 256) < block_density
        x = np.zeros((count // 256, 256), np.float32)
        x[keep] = 1.0
        x[~keep] = 0.0
        comm.barrier()
        # What was freed above must not serve the engine unseen.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident_peak()
        comm.all_reduce(x)
        return resident_peak() - before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("block_density", [1.0, 0.3])
def test_memory_beside_the_tensor_is_bounded(block_density: float) -> None:
    world_size = 4
    owners_share = world_size * WINDOW
    for growth in run_ranks(
        world_size, peak_during_all_reduce, 50_000_000, block_density, deadline_s=100
    ):
        assert growth <= 64 * MIB + owners_share
        print(f"{growth / MIB:.1f} MiB")
