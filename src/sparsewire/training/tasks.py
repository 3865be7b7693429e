"""What can be trained: each task makes, on every rank, a model with its data and optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from sparsewire.training.trial import Trial


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

    from sparsewire.training.lstm.trainee import LstmTrainee

    return LstmTrainee(np.load(trial.tokens), trial.seed, trial.width)


def _digits(trial: Trial) -> Trainee:
    from sparsewire.training.digits import DigitsTrainee

    return DigitsTrainee(trial.seed)


TASKS = {
    "lstm": Task("LSTM language model", 1200, _language),
    "digits": Task("convolutional network on digits", 6000, _digits),
}
