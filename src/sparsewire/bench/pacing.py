"""Bounds the time of a case: backends that are far behind stop, and so does the case in the end."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from sparsewire.bench.job import Sample

# Less would leave a median to chance.
_MEASURED_MIN = 3

# Nothing that took so many times as long as the fastest can turn out to be the fastest; for one
# call that lasts longer than a disturbance, this is known at once.
_FAR_BEHIND = 2.5
_LONG_S = 0.1


class Pacing:
    """Which backends go on, decided alike on all ranks; without `case_s`, all to the end."""

    def __init__(self, backends: list[str], case_s: float | None) -> None:
        self.running = backends
        self._first = backends[0] if backends else ""
        self._case_s = case_s
        self._start = time.monotonic()
        self._measured = 0

    def is_over(self, samples: dict[str, Sample]) -> bool:
        """Take note of one more measured burst; whether it was the last. Collective."""
        if self._case_s is None:
            return False
        self._measured += 1
        fastest = [min(samples[name].seconds) for name in self.running]
        slowest_rank = torch.tensor([time.monotonic() - self._start, *fastest], dtype=torch.float64)
        dist.all_reduce(slowest_rank, dist.ReduceOp.MAX)
        elapsed, *fastest = slowest_rank.tolist()
        enough = self._measured >= _MEASURED_MIN
        bound = max(_FAR_BEHIND * min(fastest), 0.0 if enough else _LONG_S)
        self.running = [
            name
            for name, seconds in zip(self.running, fastest, strict=True)
            if seconds <= bound or name == self._first
        ]
        return enough and elapsed > self._case_s
