"""What the user wants minimised, as the options say it: what all jobs of `optimize` share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar

from sparsewire.errors import OptimizeError


@dataclass(frozen=True)
class Task:
    """The options of one job, alike on every rank. Raises OptimizeError for what makes no sense."""

    models: ClassVar[tuple[str, ...]] = ("logistic", "svm", "least-squares")
    """Those that it is for."""

    data: str
    model: str = "logistic"
    epochs: int | None = None
    """Passes over the data."""
    l2: float | None = None
    """Weight of the l2 term; None: 1 / rows."""
    seed: int = 0
    positive: str | None = None
    """The classes that count as +1, separated by commas."""
    normalize: bool = False
    """Whether every row is scaled to length 1."""
    batch: int | None = None
    """Rows per worker and step, where they are drawn."""
    step: float | None = None
    """Step size, or the first one; None: from the constants of the problem."""

    def __post_init__(self) -> None:
        self._require_one_of("model", self.models)
        for name in ("epochs", "batch"):
            self._require(name, lambda value: value >= 1, "at least 1")
        for name in ("seed", "l2"):
            self._require(name, lambda value: 0 <= value < math.inf, "0 or more, and finite")
        self._require("step", lambda value: 0 < value < math.inf, "positive")

    def to_json(self) -> str:
        """What makes the same task again: Task(**json.loads(...))."""
        return json.dumps(asdict(self))

    def _require(self, name: str, holds: Callable[[float], bool], what: str) -> None:
        value = getattr(self, name)
        if value is not None and not holds(value):
            option = name.replace("_", "-")
            raise OptimizeError(f"--{option} must be {what}, not {value:g}")

    def _require_one_of(self, name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in known:
            raise OptimizeError(f"--{name} {value!r} is not known: use one of {', '.join(known)}")
