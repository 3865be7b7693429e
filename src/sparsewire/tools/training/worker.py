"""Trains one model in one trial; one process per rank, which gets the trial as JSON.

The training is ordinary DistributedDataParallel: the backend's name and, where gradients are
compressed, a hook are all that differs between trials. `run` starts the ranks, with the variables
that torchrun sets; each writes one line of JSON per event.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

import sparsewire.torch
from sparsewire.tools.experiment.crew import Tell, claim_stdout
from sparsewire.tools.measure.conditions import Usage
from sparsewire.tools.measure.wire_limit import densities
from sparsewire.tools.training.trial import TASKS, Averaging, Trial

if TYPE_CHECKING:
    from sparsewire.tools.training.trial import Trainee

Meter = Callable[[], int]

RISE = 0.02
"""The share of the steps in which the learning rate rises; then it falls along half a cosine."""


def rate_at(steps: int) -> Callable[[int], float]:
    """The learning rate of each step of a whole training, as a share of the largest."""

    def share(step: int) -> float:
        return min((step + 1) / (RISE * steps), (1 + math.cos(math.pi * step / steps)) / 2)

    return share


class Recorder:
    """Records each step: this rank's loss, seconds and bytes sent; and held-out losses."""

    def __init__(self, trainee: Trainee, sent: Meter | None) -> None:
        self._trainee, self._meter = trainee, sent
        self._counted: int | None = None
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.bytes: list[int] = []
        self.held_out: list[tuple[int, float]] = []

    def step(self, number: int) -> None:
        """Train for one step."""
        if self._counted is None:
            self._counted = self._count()
        start = time.perf_counter()
        self.losses.append(float(self._trainee.step(number)))
        self.seconds.append(time.perf_counter() - start)
        # The end of a step may leave before it is counted: then it is part of the next one's.
        before, self._counted = self._counted, self._count()
        self.bytes.append(self._counted - before)

    def _count(self) -> int:
        return self._meter() if self._meter else 0

    def evaluate(self, number: int) -> None:
        """Take the held-out loss before a step; collective."""
        self.held_out.append((number, float(_mean_over_ranks(self._trainee.held_out_loss()))))

    def means(self) -> dict[str, object]:
        """Everything, means over all ranks; collective."""
        sent = _mean_over_ranks(torch.tensor(self.bytes, dtype=torch.float64)).tolist()
        return {
            "losses": _mean_over_ranks(torch.tensor(self.losses)).tolist(),
            "step_s": self.seconds,
            "sent": sent if self._meter else None,
            "held_out": self.held_out,
        }


def meter_of(backend: str, interface: str | None) -> Meter | None:
    """A function that tells the bytes sent so far, or None where nothing counts them.

    An interface of the rank's own counts everything, for every backend alike. Without one, only
    sparsewire itself counts, and only what it sends.
    """
    if interface is not None:
        return lambda: Usage.now(interface).interface_bytes_sent
    if "sparsewire" not in backend:
        return None
    return lambda: sparsewire.torch.stats()["bytes_sent"]


def _mean_over_ranks(values: Tensor) -> Tensor:
    dist.all_reduce(values)
    return values / dist.get_world_size()


def run(trial: Trial, averaging: Averaging, tell: Tell) -> None:
    """Train as the trial says, and tell each step and then everything; collective."""
    trainee = TASKS[trial.task].make(trial)
    averaging.attach(trainee.ddp, trial.warmup)
    rates = rate_at(trial.schedule_steps) if trial.schedule_steps else lambda step: 1.0
    schedule = torch.optim.lr_scheduler.LambdaLR(trainee.optimizer, rates)
    recorder = Recorder(trainee, meter_of(averaging.backend, trial.interface))
    between = max(1, trial.steps // trial.evaluations)
    for number in range(trial.steps):
        if number % between == 0:
            recorder.evaluate(number)
        recorder.step(number)
        tell("step", number=number, loss=recorder.losses[-1])
        schedule.step()
    recorder.evaluate(trial.steps)
    parameters = sum(p.numel() for p in trainee.ddp.parameters())
    tell("trained", parameters=parameters, density_sum=_density(trainee), **recorder.means())
    if trial.alone_steps:
        tell("alone", **_alone(trainee, range(trial.steps, trial.steps + trial.alone_steps)))


def _density(trainee: Trainee) -> dict[str, float]:
    """Densities of the gradient that the last step left."""
    gradients = (p.grad for p in trainee.ddp.parameters() if p.grad is not None)
    return densities(gradient.detach().flatten().numpy() for gradient in gradients)


def _alone(trainee: Trainee, steps: range) -> dict[str, object]:
    """The time of the same work without talking, and the density of one rank's gradient."""
    seconds = []
    for number in steps:
        dist.barrier()
        start = time.perf_counter()
        with trainee.ddp.no_sync():
            trainee.step(number)
        seconds.append(time.perf_counter() - start)
    return {"alone_s": statistics.median(seconds), "density_rank": _density(trainee)}


def main() -> None:
    """Join the other ranks, train."""
    tell = claim_stdout()
    trial = Trial(**json.loads(sys.argv[1]))
    averaging = Averaging.parse(trial.averaging)
    torch.set_num_threads(1)
    dist.init_process_group(averaging.backend, timeout=timedelta(minutes=2))
    run(trial, averaging, tell)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
