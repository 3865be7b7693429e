"""One case's data on one rank: its input, dense and sparse, and the result that is expected."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sparsewire import SparseVector
from sparsewire.bench.job import Case, Job
from sparsewire.bench.patterns import Array, Contribution, Pattern, contribute, expand, numpy_dtype
from sparsewire.bench.reference import reduce_in_rank_order

# Where the sum names this share of the elements, it is smaller as a dense array.
_DENSE_RESULT = 1 / 3


@dataclass(frozen=True)
class CaseData:
    """What backends reduce. `vector` holds the same as `dense`, where the job's input is sparse."""

    dense: Array
    expected: Array
    vector: SparseVector | None
    named: list[int]
    """Positions that the vector of each rank names; empty for dense input."""
    into_dense: bool
    """Whether a sparse vector's result goes into a dense array, which is used again and again."""


def prepare(job: Job, case: Case, rank: int, ranks: int) -> CaseData:
    """Make the data; every rank makes all ranks' data itself. Collective."""
    pattern, dtype = Pattern.parse(case.pattern), numpy_dtype(job.dtype)

    def part(of: int) -> Contribution:
        return contribute(pattern, case.elements, case.density, dtype, job.seed, of)

    dense = expand(part(rank), pattern, case.elements).reshape(-1)[: case.elements]
    parts = (part(of) for of in range(ranks))
    expected = reduce_in_rank_order(parts, pattern, case.elements, job.op, ranks)
    vector = SparseVector.from_dense(dense) if job.input == "sparse" else None
    named = [] if vector is None else _named_by_all(vector.nnz, ranks)
    # The density of a sum, where the ranks' positions are independent.
    joined = 1 - (1 - case.density) ** ranks
    into_dense = job.result == "dense" or (job.result == "auto" and joined >= _DENSE_RESULT)
    return CaseData(dense, expected, vector, named, into_dense)


def _named_by_all(count: int, ranks: int) -> list[int]:
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(counts, torch.tensor([count]))
    return [int(of_rank) for of_rank in counts]
