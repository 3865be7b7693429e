"""What can be trained, and one training of it as every rank is told, by JSON.

Each task makes, on every rank, a model with its data and optimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Trial:
    """`method` says how gradients are averaged, in words that `Averaging.parse` takes."""

    task: str
    method: str
    steps: int
    seed: int
    schedule_steps: int | None = None
    """The length of the whole training, of which `steps` are run; None: rates do not change."""
    warmup: int = 0
    """The first steps, in which compressing hooks send everything."""
    evaluations: int = 10
    """How often the held-out loss is taken, beside the end."""
    alone_steps: int = 0
    """Steps without communication behind the others, to tell what that takes."""
    width: int = 128
    """Of the language model,"""
    tokens: str = ""
    """whose text is in this file."""
    interface: str | None = None
    """The network interface that only this rank uses, if any."""


class Trainee(Protocol):
    """One rank's model, data and optimiser."""

    @property
    def ddp(self) -> DistributedDataParallel: ...
    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def step(self, number: int) -> torch.Tensor:
        """Train on one batch; return this rank's loss."""

    def held_out_loss(self) -> torch.Tensor:
        """The loss on this rank's part of the data that is not trained on."""


class Task(NamedTuple):
    """A task: what it trains, for how many steps, and how it is made."""

    title: str
    steps: int
    make: Callable[[Trial], Trainee]


def _language(trial: Trial) -> Trainee:
    import numpy as np

    from sparsewire.training.lstm import LstmTrainee

    return LstmTrainee(np.load(trial.tokens), trial.seed, trial.width)


def _digits(trial: Trial) -> Trainee:
    from sparsewire.training.digits import DigitsTrainee

    return DigitsTrainee(trial.seed)


TASKS = {
    "lstm": Task("LSTM language model", 1200, _language),
    "digits": Task("convolutional network on digits", 6000, _digits),
}
