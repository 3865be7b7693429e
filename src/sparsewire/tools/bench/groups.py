"""Groups of ranks that are added up before others: the order of a sum is part of its bits."""

from __future__ import annotations

import os
import zlib
from itertools import groupby

from sparsewire.tools.bench.job import Job
from sparsewire.tools.bench.ranks import Ranks


def groups_of_ranks(job: Job, together: int, ranks: Ranks) -> list[range]:
    """Racks, where each has an aggregator and datagrams carry the job; else so many ranks
    `together` on each host, 1 where each is alone. Collective."""
    racks = _racks(ranks)
    is_plain_sum = job.op in ("sum", "avg") and job.input == "dense" and not job.precision
    if len(racks) > 1 and is_plain_sum:
        return racks
    return [range(first, first + together) for first in range(0, ranks.size, together)]


def _racks(ranks: Ranks) -> list[range]:
    """Consecutive ranks of one rack each; all of them in one where nobody names any."""
    own = zlib.crc32(os.environ.get("SPARSEWIRE_RACK", "").encode())
    names = ranks.gather([own])[:, 0]
    runs = (list(run) for _, run in groupby(range(ranks.size), lambda rank: int(names[rank])))
    return [range(run[0], run[-1] + 1) for run in runs]
