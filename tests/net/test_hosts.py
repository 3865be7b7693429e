"""Ranks that share emulated hosts: sums host by host, once over each link; in real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparsewire.tools.lab import Lab, available

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
    size, ranks = 50_000, comm.world_size
    everything = [of(r, size, "float32") for r in range(ranks)]
    total = expected(size, "float32", ranks)
    vector = sparsewire.SparseVector.from_dense(everything[rank])
    for algorithm in ("stream", "ssar_split_allgather"):
        summed = comm.all_reduce(vector, algorithm=algorithm, result="dense")
        assert np.array_equal(summed, total), algorithm
    summed = comm.all_reduce(vector, algorithm="allgather", result="dense")
    assert np.array_equal(summed, sum(everything))
    for root in range(ranks):
        summed = comm.reduce(vector, root=root)
        assert rank != root or np.array_equal(summed.to_dense(), total)
        given = comm.broadcast(vector, root=root)
        assert np.array_equal(given.to_dense(), everything[root])
    begin, end = (size * r // ranks for r in (rank, rank + 1))
    assert np.array_equal(comm.reduce_scatter(vector).to_dense(), total[begin:end])
    for given, one in zip(comm.all_gather(vector), everything, strict=True):
        assert np.array_equal(given.to_dense(), one)
    comm.barrier()
print("right")
"""

INTERFACE_BYTES = """
import numpy as np
import sparsewire
from sparsewire.tools.measure.conditions import Usage

with sparsewire.init() as comm:
    x = np.ones(2_000_000, np.float32)
    comm.all_reduce(x)

    def crossed(call):
        comm.barrier()
        before = Usage.now("eth0").interface_bytes_sent
        call()
        comm.barrier()
        return (Usage.now("eth0").interface_bytes_sent - before) / x.nbytes

    v = sparsewire.SparseVector.from_dense(x)
    print(crossed(lambda: comm.all_reduce(x)), crossed(lambda: comm.all_gather(v)))
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


def test_each_value_crosses_a_link_once() -> None:
    with Lab(2, ranks=3) as lab:
        shares = [tuple(map(float, said.split())) for said in run(lab, INTERFACE_BYTES)]
    sums, gathers = zip(*shares, strict=True)
    # Half of the values of a host go out, and half of the results come back. Headers take 5%.
    assert max(sums) < 1.15, sums
    # What each of its three ranks has.
    assert max(gathers) < 3 * 1.15, gathers
