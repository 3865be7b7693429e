"""Ranks that share emulated hosts: sums host by host, once over each link; in real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparsewire.lab import Lab, available

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(available() is not None, reason=f"{available()}"),
]

SUMS = """
import os
import numpy as np
import sparsewire

rank, per_host = int(os.environ["RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
flat = os.environ.get("SPARSEWIRE_HOSTS") == "flat"

def of(rank, size, dtype):
    random = np.random.default_rng([rank, size])
    x = np.zeros(size, np.float64)
    x[random.random(size) < 0.3] = 1000 * random.standard_normal()
    return (x * random.random(size)).astype(dtype)

def expected(size, dtype, ranks):
    parts = [of(r, size, dtype) for r in range(ranks)]
    if not flat:
        parts = [sum(parts[i:i + per_host]) for i in range(0, ranks, per_host)]
    return sum(parts)

with sparsewire.init() as comm:
    for dtype in ("float32", "float64", "int32"):
        for size in (0, 1, 1000, 300_000):
            x = of(rank, size, dtype)
            comm.all_reduce(x)
            assert np.array_equal(x, expected(size, dtype, comm.world_size)), (dtype, size)
    vector = sparsewire.SparseVector.from_dense(of(rank, 50_000, "float32"))
    total = comm.all_reduce(vector, algorithm="stream", result="dense")
    assert np.array_equal(total, expected(50_000, "float32", comm.world_size))
    comm.barrier()
print("right")
"""

INTERFACE_BYTES = """
import numpy as np
import sparsewire
from sparsewire.measure.conditions import Usage

with sparsewire.init() as comm:
    x = np.ones(2_000_000, np.float32)
    comm.all_reduce(x)
    comm.barrier()
    before = Usage.now("eth0").interface_bytes_sent
    comm.all_reduce(x)
    comm.barrier()
    print((Usage.now("eth0").interface_bytes_sent - before) / x.nbytes)
"""


def run(lab: Lab, script: str, environment: dict[str, str] | None = None) -> list[str]:
    """What each rank prints."""
    processes = [
        lab.popen(
            place,
            [sys.executable, "-c", script],
            {**os.environ, **lab.environment(place), **(environment or {})},
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in range(len(lab.addresses))
    ]
    said = [process.communicate(timeout=50)[0].strip() for process in processes]
    assert not any(process.returncode for process in processes), said
    return said


@pytest.mark.parametrize("hosts", ["levels", "flat"])
@pytest.mark.parametrize("shared", ["1", "0"])
def test_sums_are_added_host_by_host(hosts: str, shared: str) -> None:
    settings = {"SPARSEWIRE_HOSTS": hosts, "SPARSEWIRE_SHARED_MEMORY": shared}
    with Lab(2, ranks=2) as lab:
        assert run(lab, SUMS, settings) == ["right"] * 4


def test_each_sum_crosses_a_link_once() -> None:
    with Lab(2, ranks=3) as lab:
        shares = [float(share) for share in run(lab, INTERFACE_BYTES)]
    # Half of the values of a host go out, and half of the results come back. Headers take 5%.
    assert max(shares) < 1.15, shares
