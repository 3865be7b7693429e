"""What the user asked to compare: the methods, the link, and when they have done enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparsewire.errors import OptimizeError
from sparsewire.optimize.compare.link import Link, read_link
from sparsewire.optimize.task import Task

SPLITS = ("shuffled", "label", "index")


@dataclass(frozen=True)
class Comparison(Task):
    """One comparison, or a choice; raises a ValueError for the link.

    A method ends after `epochs` passes over the data, or so many `rounds`; see `Limits`.
    """

    methods: tuple[str, ...] = ()
    """Each as METHOD or METHOD/COMPRESSOR."""
    compressor: str | None = None
    """That of the methods that name none."""
    workers: int = 20
    split: str = "shuffled"
    """How rows are divided among the workers."""
    l1: float = 0.0
    normalize: bool = True
    batch: int = 1
    rounds: int | None = None
    accuracy: float | None = None
    """|x - x*|^2 as a share of what it is at the start; None: see who runs it."""
    link: str = "1gbit"
    downlink: str | None = None
    """None: as `link`."""
    latency: str = "100us"
    """Of one message in one direction."""
    top: int = 4
    """How many of those that are predicted to be best are run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in SPLITS:
            raise OptimizeError(f"there is no --split {self.split}; there are {', '.join(SPLITS)}")
        for name in ("workers", "rounds", "top"):
            self._require(name, lambda value: value >= 1, "at least 1")
        self._require("l1", lambda value: 0 <= value < math.inf, "0 or more, and finite")
        self._require("accuracy", lambda value: 0 < value < 1, "between 0 and 1")
        self.link_model()

    def link_model(self) -> Link:
        """The link in numbers."""
        return read_link(self.link, self.downlink, self.latency)
