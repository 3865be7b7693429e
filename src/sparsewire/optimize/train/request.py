"""What the user asked for: data, model, method and its options, checked and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from sparsewire.errors import OptimizeError

MODELS = ("logistic", "svm")

# Which options belong to which method; None means that the method chooses.
METHOD_OPTIONS = {
    "sgd": ("batch", "step", "algorithm", "precision"),
    "bcd": ("block",),
}


@dataclass(frozen=True)
class Request:
    """One optimisation, alike on every rank. Raises OptimizeError for what makes no sense."""

    data: str
    model: str = "logistic"
    method: str = "sgd"
    epochs: int = 10
    l2: float | None = None
    """Weight of the l2 term; None: 1 / training rows."""
    seed: int = 0
    test_share: float = 0.2
    """Share of the rows that is held out, in [0, 1)."""
    positive: str | None = None
    """The classes that count as +1, separated by commas."""
    normalize: bool = False
    """Whether every row is scaled to length 1."""
    batch: int | None = None
    """Rows per rank and step."""
    step: float | None = None
    """First step size; None: from the smoothness constant."""
    algorithm: str | None = None
    precision: str | None = None
    """As `Communicator.all_reduce` takes it; two names for the two phases have a comma between."""
    block: int | None = None
    """Coordinates per rank and step."""

    def __post_init__(self) -> None:
        _one_of("model", self.model, MODELS)
        _one_of("method", self.method, tuple(METHOD_OPTIONS))
        self._check_method_options()
        _require(self.epochs >= 1, f"--epochs must be at least 1, not {self.epochs}")
        _require(self.seed >= 0, f"--seed must not be negative, not {self.seed}")
        _require(
            0 <= self.test_share < 1, f"--test-share must be in [0, 1), not {self.test_share:g}"
        )
        for name in ("batch", "block"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"--{name} must be at least 1, not {value}")
        if self.step is not None:
            _require(0 < self.step < math.inf, f"--step must be positive, not {self.step:g}")
        if self.l2 is not None:
            _require(0 <= self.l2 < math.inf, f"--l2 must be 0 or more, not {self.l2:g}")

    def _check_method_options(self) -> None:
        own = METHOD_OPTIONS[self.method]
        for options in METHOD_OPTIONS.values():
            for name in options:
                _require(
                    name in own or getattr(self, name) is None,
                    f"--{name} is no option of --method {self.method}; "
                    f"it has {', '.join(f'--{option}' for option in own)}",
                )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    _require(value in known, f"--{name} {value!r} is not known: use one of {', '.join(known)}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise OptimizeError(message)
