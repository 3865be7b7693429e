"""Replays recorded backward passes with other transfers: on a link, buckets go one by one."""

from __future__ import annotations

from collections.abc import Sequence

from sparsewire.tools.advise.prediction.timeline import Pass
from sparsewire.tools.advise.prediction.transfers import Transfer

_MOST = 0.8


class _Computing:
    """The backward pass, which goes slower while transfers take a share of the processor."""

    def __init__(self) -> None:
        self.now = 0.0
        self._slow: list[tuple[float, float, float]] = []

    def share(self, begin: float, end: float, stolen_s: float) -> None:
        """Have a transfer slow computing from `begin` to `end`. Transfers come in their order."""
        if stolen_s > 0 and end > begin:
            self._slow.append((begin, end, min(stolen_s / (end - begin), _MOST)))

    def stall(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        """Compute for `seconds`, or longer while transfers take a share."""
        for begin, end, share in self._slow:
            alone = min(max(begin - self.now, 0.0), seconds)
            self.now, seconds = self.now + alone, seconds - alone
            done = min(max(end - self.now, 0.0) * (1 - share), seconds)
            self.now, seconds = self.now + done / (1 - share), seconds - done
        self.now += seconds


def _replayed(
    recorded: Pass, transfers: Sequence[Transfer]
) -> tuple[list[tuple[float, float]], float]:
    """When transfers begin and end, and when all is computed."""
    found, computing, before, free = [], _Computing(), 0.0, 0.0
    for ready, transfer in zip(recorded.ready, transfers, strict=True):
        computing.work(ready - before)
        computing.stall(transfer.hook_s)
        before, begin = ready, max(computing.now, free)
        free = begin + transfer.seconds
        computing.share(begin, free, transfer.stolen_s)
        found.append((begin, free))
    computing.work(recorded.end - before)
    return found, computing.now


def spans(recorded: Pass, transfers: Sequence[Transfer]) -> list[tuple[float, float]]:
    """When each bucket's transfer begins and ends, in seconds since the ranks were together."""
    return _replayed(recorded, transfers)[0]


def step_s(recorded: Pass, transfers: Sequence[Transfer]) -> float:
    """Seconds of the whole step: until all ranks have computed, and all buckets are there."""
    sent, computed = _replayed(recorded, transfers)
    return max([computed, *(end for _, end in sent)])
