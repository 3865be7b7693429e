"""The acceptance checks: what a test asks of what it measures, recorded and then asserted.

benchmarks/proofs.sh runs them in full, and makes a table and plots of the records.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

FULL = os.environ.get("SPARSEWIRE_FULL_CHECKS") == "1"
"""Whether checks run on whole data sets and with as many draws as they ask for."""
LIBSVM = ("mushrooms", "a9a", "phishing", "w8a")
"""The data sets of the full checks. The first is the reference, with the checks' own constants."""
OTHERS = LIBSVM[1:]
"""Problems on these are better conditioned where steps are many, which saves time."""
CONSTRUCTED = "constructed"
"""In place of a data set: functions and vectors that a check makes by itself."""
_CURVE_POINTS = 400


def cases(quick: Sequence[Any], full: Sequence[Any]) -> list[Any]:
    """What a check runs on: `quick` as part of the tests, `full` where FULL; (name, ...) each."""
    return [pytest.param(case, id=case[0]) for case in (full if FULL else quick)]


@dataclass(frozen=True)
class Check:
    """One acceptance check, by its number, on one data set."""

    number: int
    data: str

    def between(self, what: str, value: float, low: float, high: float = math.inf) -> None:
        """Record the value, and assert that it is within the bounds, which themselves are."""
        value, holds = float(value), bool(low <= value <= high)
        self._record(what=what, value=value, low=low, high=high, holds=holds)
        print(f"check {self.number} on {self.data}: {what} {value:.3g}, target {low} to {high}")
        assert holds, f"{what} is {value:.6g}, not {low} to {high}"

    def at_most(self, what: str, value: float, high: float) -> None:
        self.between(what, value, -math.inf, high)

    def at_least(self, what: str, value: float, low: float) -> None:
        self.between(what, value, low)

    def holds(self, what: str, truth: bool) -> None:
        """Record and assert what is true or not: 1 or 0."""
        self.between(what, float(truth), 1, 1)

    def curve(self, label: str, values: Sequence[float], every: float = 1) -> None:
        """Record values for the plot of this check, `every` so many rounds or epochs."""
        stride = max(1, len(values) // _CURVE_POINTS)
        y = np.asarray(values, float)[::stride].tolist()
        self._record(curve=label, x=[every * stride * k for k in range(len(y))], y=y)

    def _record(self, **fields: Any) -> None:
        if path := os.environ.get("SPARSEWIRE_RECORD"):
            with open(path, "a") as file:
                file.write(json.dumps({"check": self.number, "data": self.data, **fields}) + "\n")
