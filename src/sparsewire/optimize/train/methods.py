"""The methods by name, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparsewire import Communicator
from sparsewire.optimize.train.block_descent import BlockDescent
from sparsewire.optimize.train.data import Csr
from sparsewire.optimize.train.problem import Problem
from sparsewire.optimize.train.request import Request
from sparsewire.optimize.train.scores import Scores
from sparsewire.optimize.train.sgd import Sgd
from sparsewire.optimize.train.stopwatch import Stopwatch


class Method(Protocol):
    """One rank of an optimisation. What is collective is called on all ranks alike."""

    steps: int
    """Steps in an epoch, each with one collective."""
    communication: Stopwatch
    """Time in the collectives of the steps, waiting for slower ranks included."""

    @property
    def step_size(self) -> float | None:
        """The first step size; None where each step finds its own."""

    @property
    def dense_bytes(self) -> float:
        """What a rank would send in an epoch without sparsity: dense sums around a ring."""

    def epoch(self) -> None:
        """Take all steps of one epoch; collective."""

    def scores(self) -> Scores:
        """Judge the current model; collective."""


METHODS: dict[str, Callable[[Communicator, Problem, Csr, Csr, Request], Method]] = {
    "sgd": Sgd,
    "bcd": BlockDescent,
}
"""Each takes all training rows and all test rows, and keeps what its rank needs."""
