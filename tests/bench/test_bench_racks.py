"""The benchmark knows in which order racks are added up, and which ranks these are."""

from __future__ import annotations

import os

import numpy as np
import pytest
from launched import launched
from rank_order import reduce_in_rank_order
from support import run_ranks

from sparsewire.tools.bench.case_data import prepare
from sparsewire.tools.bench.groups import groups_of_ranks
from sparsewire.tools.bench.job import BenchOptions, Job
from sparsewire.tools.bench.ranks import Ranks


def job_of(**fields: str) -> Job:
    return BenchOptions(elements="5000", **fields).job(4)


def groups_in(racks: list[str], fields: dict[str, str], together: int) -> list[range]:
    rank = int(os.environ["RANK"])
    os.environ["SPARSEWIRE_RACK"] = racks[rank]
    return groups_of_ranks(job_of(**fields), together, Ranks.meet(30.0))


@pytest.mark.parametrize(
    ("racks", "fields", "together", "expected"),
    [
        (["a", "a", "b", "b"], {}, 1, [range(2), range(2, 4)]),
        (["", "", "", ""], {}, 1, [range(r, r + 1) for r in range(4)]),
        (["", "", "", ""], {}, 2, [range(2), range(2, 4)]),
        # What goes by connections is added up at the root.
        (["a", "a", "a", "b"], {"op": "max"}, 1, [range(r, r + 1) for r in range(4)]),
    ],
)
def test_racks_and_hosts_are_groups(
    racks: list[str],
    fields: dict[str, str],
    together: int,
    expected: list[range],
    free_port: int,
) -> None:
    meeting = launched(free_port)
    results = run_ranks(4, groups_in, racks, fields, together, environment=meeting)
    assert results == [expected] * 4


def test_sums_of_groups_are_added_in_order() -> None:
    job = job_of()
    alone = [range(rank, rank + 1) for rank in range(4)]
    parts = [prepare(job, job.cases[0], rank, alone).dense for rank in range(4)]
    in_pairs = prepare(job, job.cases[0], 0, [range(2), range(2, 4)]).expected
    pairs = [reduce_in_rank_order(parts[first : first + 2], "sum") for first in (0, 2)]
    assert np.array_equal(in_pairs, reduce_in_rank_order(pairs, "sum"))
    assert not np.array_equal(in_pairs, reduce_in_rank_order(parts, "sum"))
