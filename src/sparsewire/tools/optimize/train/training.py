"""The user's task: a linear model to train, the method, and its options."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from sparsewire.errors import OptimizeError
from sparsewire.tools.optimize.task import Task

# The options of each method; None means that the method chooses.
METHOD_OPTIONS = {
    "sgd": ("batch", "step", "algorithm", "precision"),
    "bcd": ("block",),
}


@dataclass(frozen=True)
class Training(Task):
    """One training. `step` is the first step size."""

    models = ("logistic", "svm")

    epochs: int = 10
    method: str = "sgd"
    test_share: float = 0.2
    """Share of the rows that is held out, in [0, 1)."""
    algorithm: str | None = None
    precision: str | None = None
    """As `Communicator.all_reduce` takes it; two names for the two phases have a comma between."""
    block: int | None = None
    """Coordinates per rank and step."""

    def __post_init__(self) -> None:
        self._require_one_of("method", tuple(METHOD_OPTIONS))
        own = METHOD_OPTIONS[self.method]
        for name in chain(*METHOD_OPTIONS.values()):
            if name not in own and getattr(self, name) is not None:
                raise OptimizeError(
                    f"--{name} is no option of --method {self.method}; "
                    f"it has {', '.join(f'--{option}' for option in own)}"
                )
        super().__post_init__()
        self._require("test_share", lambda value: 0 <= value < 1, "in [0, 1)")
        self._require("block", lambda value: value >= 1, "at least 1")
