"""Trains one model in one trial; one process per rank, which gets the trial as JSON.

Rank 0 writes one line of JSON per event.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

import sparsewire.torch  # noqa: F401
from sparsewire.demo.traffic import Meter, meter
from sparsewire.demo.train import mean_over_ranks, report
from sparsewire.training.method import Method
from sparsewire.training.tasks import TASKS, Trainee
from sparsewire.training.trial import Trial

EVALUATIONS = 10
RISE = 0.02
"""The share of the steps in which the learning rate rises; then it falls along half a cosine."""


def rate_at(steps: int) -> Callable[[int], float]:
    """The learning rate of each step of a whole training, as a share of the largest."""

    def share(step: int) -> float:
        return min((step + 1) / (RISE * steps), (1 + math.cos(math.pi * step / steps)) / 2)

    return share


class Record:
    """What happens in each step: this rank's loss, seconds and bytes sent; and held-out losses."""

    def __init__(self, sent: Meter | None) -> None:
        self._meter = sent
        self._counted: int | None = None
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.bytes: list[int] = []
        self.held_out: list[tuple[int, float]] = []

    def step(self, trainee: Trainee, number: int) -> None:
        """Train for one step."""
        if self._counted is None:
            self._counted = self._count()
        start = time.perf_counter()
        self.losses.append(float(trainee.step(number)))
        self.seconds.append(time.perf_counter() - start)
        # The end of a step may leave before it is counted: then it is part of the next one's.
        before, self._counted = self._counted, self._count()
        self.bytes.append(self._counted - before)
        report("step", number=number, loss=self.losses[-1])

    def _count(self) -> int:
        return self._meter() if self._meter else 0

    def evaluate(self, trainee: Trainee, number: int) -> None:
        self.held_out.append((number, trainee.held_out_loss()))

    def report(self, trainee: Trainee) -> None:
        """Report everything, means over all ranks, on rank 0."""
        losses = mean_over_ranks(torch.tensor(self.losses)).tolist()
        sent = mean_over_ranks(torch.tensor(self.bytes, dtype=torch.float64)).tolist()
        report(
            "trained",
            losses=losses,
            step_s=self.seconds,
            sent=sent if self._meter else None,
            held_out=self.held_out,
            parameters=sum(p.numel() for p in trainee.ddp.parameters()),
        )


def run(trial: Trial, method: Method) -> None:
    """Train as the trial says; all ranks do the same."""
    trainee = TASKS[trial.task].make(trial)
    method.attach(trainee.ddp, trial.warmup)
    schedule = torch.optim.lr_scheduler.LambdaLR(trainee.optimizer, rate_at(trial.schedule_steps))
    record = Record(meter(method.backend, trial.interface))
    between = max(1, trial.steps // EVALUATIONS)
    for number in range(trial.steps):
        if number % between == 0:
            record.evaluate(trainee, number)
        record.step(trainee, number)
        schedule.step()
    record.evaluate(trainee, trial.steps)
    record.report(trainee)


def main() -> None:
    """Join the other ranks, train."""
    trial = Trial.from_json(sys.argv[1])
    method = Method.parse(trial.method)
    torch.set_num_threads(1)
    dist.init_process_group(method.backend, timeout=timedelta(minutes=2))
    run(trial, method)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
