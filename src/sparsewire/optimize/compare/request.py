"""What the user asked for: the data, the methods, and when they have done enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sparsewire.errors import OptimizeError
from sparsewire.optimize.compare.link import Link, read_link

MODELS = ("logistic", "least-squares")
SPLITS = ("shuffled", "label", "index")


@dataclass(frozen=True)
class Request:
    """One study, alike on every rank. Raises OptimizeError, a ValueError for the link."""

    data: str
    methods: tuple[str, ...] = ()
    """Each as METHOD or METHOD/COMPRESSOR."""
    compressor: str | None = None
    """That of the methods that name none."""
    model: str = "logistic"
    workers: int = 20
    split: str = "shuffled"
    """How rows are divided among the workers."""
    l2: float | None = None
    """Weight of the l2 term; None: 1 / rows."""
    l1: float = 0.0
    positive: str | None = None
    """The classes that count as +1, separated by commas."""
    normalize: bool = True
    """Whether every row is scaled to length 1."""
    seed: int = 0
    batch: int = 1
    """Components that each worker draws per round, where the method draws."""
    step: float | None = None
    """Step size; None: that of each method's theory."""
    epochs: int | None = None
    """A method ends after so many passes over the data,"""
    rounds: int | None = None
    """or so many rounds,"""
    accuracy: float | None = None
    """or with |x - x*|^2 so small a part of what it is at the start; None: see who runs it."""
    link: str = "1gbit"
    downlink: str | None = None
    """None: as `link`."""
    latency: str = "100us"
    """Of one message in one direction."""
    top: int = 4
    """How many of the choices that are predicted to be best are run."""

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            # The choice of models is shared with the training of linear models.
            raise OptimizeError(
                f"--model {self.model} is for --method sgd and bcd only: "
                f"use one of {', '.join(MODELS)}"
            )
        if self.split not in SPLITS:
            raise OptimizeError(f"there is no --split {self.split}; there are {', '.join(SPLITS)}")
        for name in ("workers", "batch", "epochs", "rounds", "top"):
            self._require(name, lambda value: value >= 1, "at least 1")
        for name in ("seed", "l1", "l2"):
            self._require(name, lambda value: 0 <= value < math.inf, "0 or more, and finite")
        self._require("step", lambda value: 0 < value < math.inf, "positive")
        self._require("accuracy", lambda value: 0 < value < 1, "between 0 and 1")
        self.link_model()

    def link_model(self) -> Link:
        """The link in numbers."""
        return read_link(self.link, self.downlink, self.latency)

    def _require(self, name: str, holds: Callable[[float], bool], what: str) -> None:
        value = getattr(self, name)
        if value is not None and not holds(value):
            raise OptimizeError(f"--{name} must be {what}, not {value:g}")
