"""Exchanges over several lanes: the bits are those of one lane."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from support import run_ranks

import sparsewire

LENGTH = 2_500_000
NAMED = 60_000
ALGORITHMS = ("ssar_split_allgather", "ssar_recursive_double", "ring", "allgather")


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def results() -> list[str]:
    """Of every collective of large sparse vectors that runs as an exchange."""
    with sparsewire.init() as comm:
        random = np.random.default_rng([comm.rank, 1])
        indices = np.unique(random.integers(0, LENGTH, NAMED))
        values = random.standard_normal(len(indices)).astype(np.float32)
        vector = sparsewire.SparseVector(indices, values, LENGTH)
        found = []
        for algorithm in ALGORITHMS:
            for precision in (None, "int8"):
                settings = {"algorithm": algorithm, "precision": precision}
                total = comm.all_reduce(vector, **settings)
                found.append(digest(total.indices, total.values))
                found.append(digest(comm.all_reduce(vector, **settings, result="dense")))
        for one in (comm.reduce_scatter(vector), comm.broadcast(vector, root=1)):
            found.append(digest(one.indices, one.values))
        found.append(digest(*(each.values for each in comm.all_gather(vector))))
        summed = comm.reduce(vector, root=2)
        found.append(digest(summed.values) if comm.rank == 2 else "")
        return found


@pytest.mark.timeout(200)
def test_the_number_of_lanes_changes_no_bit() -> None:
    settings = {"SPARSEWIRE_LINK": "5e-5,1e-9,4e-9"}
    one, two, three = (
        run_ranks(3, results, environment={**settings, "SPARSEWIRE_LANES": lanes}, deadline_s=60)
        for lanes in "123"
    )
    assert one == two == three
