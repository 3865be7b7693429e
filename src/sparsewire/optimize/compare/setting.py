"""What all methods of a comparison minimised, on which link, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sparsewire.optimize.compare.limits import Limits
from sparsewire.optimize.compare.link import Link
from sparsewire.optimize.compare.yardstick import Yardstick

_SPLITS = {"shuffled": "shuffled", "label": "sorted by label", "index": "in their order"}


@dataclass(frozen=True)
class Setting:
    """The problem in numbers, after all defaults are known."""

    data: str
    model: str
    workers: int
    simulated: bool
    """Whether one process played all workers."""
    rows: int
    """Of all workers; what could not be dealt out evenly is left out."""
    dimension: int
    split: str
    l2: float
    l1: float
    smoothness: float
    """L, of f."""
    worker_smoothness: float
    """The largest L_i."""
    row_smoothness: float
    """L_max, the largest of a single row."""
    condition: float
    """L / mu, infinite where mu is 0."""
    limits: Limits
    """Where each method ends at the latest."""
    link: Link
    lowest: float
    """F(x*)."""
    first_distance: float
    """|x - x*|^2 at the start."""

    @classmethod
    def of(cls, yardstick: Yardstick, limits: Limits, simulated: bool) -> Setting:
        task, problem = yardstick.task, yardstick.problem
        return cls(
            data=Path(task.data).name,
            model=task.model,
            workers=problem.workers,
            simulated=simulated,
            rows=sum(problem.m),
            dimension=problem.dimension,
            split=task.split,
            l2=problem.l2,
            l1=problem.l1,
            smoothness=problem.L,
            worker_smoothness=max(problem.L_i),
            row_smoothness=problem.L_max,
            condition=problem.L / problem.mu if problem.mu else math.inf,
            limits=limits,
            link=yardstick.link,
            lowest=yardstick.lowest,
            first_distance=yardstick.first_distance,
        )

    def __str__(self) -> str:
        terms = f"l2 {self.l2:.3g}" + (f", l1 {self.l1:.3g}" if self.l1 else "")
        return (
            f"{self.title}\n"
            f"{self.rows:,} rows, {self.dimension:,} features, {terms}, "
            f"condition number {self.condition:,.0f}\n"
            f"modelled time: that of messages, {self.link}\n"
            f"each ends where {self.limits}"
        )

    @property
    def title(self) -> str:
        """One line for tables and pictures."""
        workers = f"{self.workers} {'simulated ' * self.simulated}workers"
        return f"{self.data}: {self.model}, {workers}, rows {_SPLITS[self.split]}"
