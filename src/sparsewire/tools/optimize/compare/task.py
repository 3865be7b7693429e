"""The user's task: the methods to compare, the link, and the limits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sparsewire.errors import OptimizeError
from sparsewire.tools.lab import parse_speed
from sparsewire.tools.measure.sizes import seconds_text, speed_text
from sparsewire.tools.optimize.task import Task

VALUE_BITS = 64
"""Values travel as float64, so that rounding does not end the convergence."""

SPLITS = {"shuffled": "shuffled", "label": "sorted by label", "index": "in their order"}
"""How rows may be divided among workers, and what people call that."""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class LinkModel:
    """A modelled link: what each worker has to the server, in both directions at the same time.

    The server keeps up with all workers, as it does where every worker is the server of a part.
    """

    up_bits_s: float
    """Bits per second from a worker to the server."""
    down_bits_s: float
    latency_s: float
    """Latency of one message in one direction."""

    def seconds(self, rounds: float, bits: float, dimension: int) -> float:
        """Seconds of `rounds` rounds in which a worker sends `bits` in all.

        After each round the server sends every worker the mean: `dimension` values, since the mean
        is dense. Computation is not counted.
        """
        down_bits = rounds * VALUE_BITS * dimension
        return 2 * self.latency_s * rounds + bits / self.up_bits_s + down_bits / self.down_bits_s

    def __str__(self) -> str:
        up, down = speed_text(self.up_bits_s), speed_text(self.down_bits_s)
        both = f"{up} per worker" if up == down else f"{up} per worker to the server, {down} back"
        return f"{both}, {seconds_text(self.latency_s)} latency"


def parse_latency(text: str) -> float:
    """The seconds that "100us", "0.5ms" or "1s" says; raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip().lower())
    if match is None:
        raise ValueError(f"cannot read latency {text!r}: write it like 100us or 5ms")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class Comparison(Task):
    """One comparison, or a choice; raises a ValueError for the link.

    A method ends after `epochs` passes over the data, or so many `rounds`; see `Limits`.
    """

    methods: tuple[str, ...] = ()
    """Each as METHOD or METHOD/COMPRESSOR."""
    compressor: str | None = None
    """The operator of methods that name none."""
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
    """Latency of one message in one direction."""
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

    def link_model(self) -> LinkModel:
        """The link in numbers."""
        up = parse_speed(self.link)
        down = up if self.downlink is None else parse_speed(self.downlink)
        return LinkModel(up, down, parse_latency(self.latency))


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
        """The task's limits. A task that limits rounds or epochs has no other limit."""
        accuracy = default.accuracy if task.accuracy is None else task.accuracy
        if task.rounds is None and task.epochs is None:
            return cls(accuracy, default.rounds, default.epochs)
        return cls(accuracy, task.rounds or math.inf, task.epochs or math.inf)

    def __str__(self) -> str:
        bounds = {"rounds": self.rounds, "epochs": self.epochs}
        finite = [f"{bound:,.0f} {name}" for name, bound in bounds.items() if bound < math.inf]
        after = f", or after {' or '.join(finite)}" if finite else ""
        return f"|x - x*|² is {self.accuracy:g} of what it was{after}"
