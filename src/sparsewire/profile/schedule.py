"""The schedule of recorded and sampled steps, which all ranks share.

Pure: it counts steps, and is told when the next sample is due.
"""

from __future__ import annotations

import math
import statistics
from enum import Enum

from sparsewire.profile.records.plan import Plan

# The mean share of a step's time for samples. It is below the promise, as costs vary.
_SHARE = 0.05

# The first steps are timed without samples, for a time to compare with.
_TIMED_FIRST = 2


class Phase(Enum):
    """The phase of a step in the profile."""

    warmup = "left out"
    timed = "recorded"
    sampled = "recorded, with densities"
    over = "behind the last one"


class Schedule:
    """Steps are numbered from 0 on."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._end = plan.warmup + plan.steps
        first = plan.warmup + (0 if plan.every else _TIMED_FIRST)
        self._next = min(first, self._end - 1)

    def phase(self, step: int) -> Phase:
        if step < self._plan.warmup:
            return Phase.warmup
        if step >= self._end:
            return Phase.over
        return Phase.sampled if step == self._next else Phase.timed

    def is_first(self, step: int) -> bool:
        """Whether it is the first one that is recorded."""
        return step == self._plan.warmup

    def sampled(self, step: int, interval: int) -> None:
        """The next sample comes so many steps behind this one."""
        self._next = step + max(1, interval)

    def interval(self, costs: list[float], durations: list[float]) -> int:
        """After how many steps to sample again: seconds of samples so far, and of plain steps."""
        if self._plan.every is not None:
            return self._plan.every
        if not costs or not durations:
            return self._plan.steps
        budget = _SHARE * statistics.median(durations)
        most = float(self._plan.steps)
        return math.ceil(min(most, statistics.mean(costs) / budget)) if budget > 0 else int(most)
