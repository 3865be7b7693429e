"""Where a method ends: close enough, or after so many rounds or passes over the data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparsewire.optimize.compare.task import Comparison


@dataclass(frozen=True)
class Limits:
    """A method ends at the first of these; infinite is no limit."""

    accuracy: float
    """|x - x*|^2 as a share of what it is at the start."""
    rounds: float
    epochs: float
    """Passes over the data."""

    @classmethod
    def of(cls, task: Comparison, default: Limits) -> Limits:
        """Those of the task. Who limits rounds or epochs means just that, and no other limit."""
        accuracy = default.accuracy if task.accuracy is None else task.accuracy
        if task.rounds is None and task.epochs is None:
            return cls(accuracy, default.rounds, default.epochs)
        return cls(accuracy, task.rounds or math.inf, task.epochs or math.inf)

    def __str__(self) -> str:
        bounds = {"rounds": self.rounds, "epochs": self.epochs}
        finite = [f"{bound:,.0f} {name}" for name, bound in bounds.items() if bound < math.inf]
        after = f", or after {' or '.join(finite)}" if finite else ""
        return f"|x - x*|² is {self.accuracy:g} of what it was{after}"
