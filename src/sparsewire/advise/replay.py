"""Replays recorded backward passes with other transfers: on a link, buckets go one by one."""

from __future__ import annotations

from collections.abc import Sequence

from sparsewire.advise.timeline import Pass
from sparsewire.advise.transfers import Transfer


def spans(recorded: Pass, transfers: Sequence[Transfer]) -> list[tuple[float, float]]:
    """When each bucket's transfer begins and ends, in seconds since the ranks were together."""
    found, stalled, free = [], 0.0, 0.0
    for ready, transfer in zip(recorded.ready, transfers, strict=True):
        stalled += transfer.hook_s
        begin = max(ready + stalled, free)
        free = begin + transfer.seconds
        found.append((begin, free))
    return found


def step_s(recorded: Pass, transfers: Sequence[Transfer]) -> float:
    """Seconds of the whole step: until all ranks have computed, and all buckets are there."""
    computed = recorded.end + sum(transfer.hook_s for transfer in transfers)
    return max([computed, *(end for _, end in spans(recorded, transfers))])
