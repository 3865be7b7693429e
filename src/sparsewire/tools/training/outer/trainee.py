"""One rank's training by an order: real steps, or steps that sleep and replay gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.optim import SGD, Optimizer

from sparsewire.tools.training.outer.gpt import GPT
from sparsewire.tools.training.outer.method import CLIP, Averaged, rising
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.order import Order, Setting
from sparsewire.tools.training.outer.recorder import Recorder
from sparsewire.tools.training.outer.text import Text
from sparsewire.tools.training.workloads.recording import Replay, record
from sparsewire.tools.training.workloads.workload import Job

LAST_SHARE = 0.1
"""Of the peak rate, at the end."""
RECORDED = 4
"""Steps whose gradients are replayed in turn."""
SLEEPS = 4
"""Parts that a replayed backward pass is slept in: each wakes up a little late."""
EVALUATED = 16
"""Windows of one pass that takes a held-out loss."""

Pass = Callable[[int], Tensor]


def share_of_rate(steps: int) -> Callable[[int], float]:
    """The share of the peak rate at each step: it rises, then falls along half a cosine."""

    def share(step: int) -> float:
        falling = LAST_SHARE + (1 - LAST_SHARE) * (1 + math.cos(math.pi * step / steps)) / 2
        return min(rising(step), falling)

    return share


class Trainee:
    """The model, its data and its optimizer on this rank; all ranks begin with the same model."""

    def __init__(self, setting: Setting, order: Order) -> None:
        torch.manual_seed(order.seed)
        self._setting, self._order, self._method = setting, order, METHODS[order.method]
        self.text = Text.of(setting)
        self.model = GPT(self.text.vocabulary, setting.shape)
        vector_to_parameters(torch.from_numpy(np.load(setting.start)), self.model.parameters())
        self.inner = self._inner(order)
        shares = share_of_rate(order.schedule_steps)
        self._schedules = [torch.optim.lr_scheduler.LambdaLR(each, shares) for each in self.inner]
        batch = partial(self.text.draw, setting.shape.batch)
        self._job = Job(self.model, batch, lambda _: self.inner[-1])

    def _inner(self, order: Order) -> Sequence[Optimizer]:
        """The method's optimizers; steps that sleep have their time in it, and take a cheap one."""
        if order.compute_s is None:
            return self._method.inner(self.model, order.rate)
        return [SGD(self.model.parameters(), order.rate, fused=True)]

    def train(self, tell: Callable[[int], None]) -> dict[str, Any]:
        """Run all steps; returns what there is to tell of them. Collective."""
        recorder = Recorder(self.held_out_loss)
        module, loss_of = self._module()
        with self._method.attach(self._order, module, self.model, self.inner) as averaged:
            recorder.begin()
            self._steps(averaged, partial(loss_of, averaged.module), recorder, tell)
            averaged.finish()
            recorder.evaluate()
            parameters = sum(parameter.numel() for parameter in self.model.parameters())
            told = {"parameters": parameters, "told": dict(averaged.told())}
            return {**recorder.over_ranks(), **told}

    def _module(self) -> tuple[nn.Module, Callable[[nn.Module, int], Tensor]]:
        """What gives the loss, and how it is called for a step."""
        if self._order.compute_s is None:
            return self.model, lambda module, step: module(*self._batch(step))
        recording = record(self._job, self._order.seed, dist.get_rank(), RECORDED)
        ready = [(place, math.ceil(SLEEPS * share) / SLEEPS) for place, share in recording.ready]
        coarse = replace(recording, ready=ready)
        return Replay(self.model, coarse, self._order.compute_s), nn.Module.__call__

    def _batch(self, step: int) -> tuple[Tensor, ...]:
        return self._job.batch_of(self._order.seed, dist.get_rank(), step)

    def _steps(
        self, averaged: Averaged, loss_of: Pass, recorder: Recorder, tell: Callable[[int], None]
    ) -> None:
        for number in range(self._order.steps):
            if number % self._setting.between == 0 and self._order.compute_s is None:
                recorder.evaluate()
            self._step(loss_of, number)
            recorder.end_step()
            tell(number + 1)

    def _step(self, loss_of: Pass, number: int) -> None:
        self.model.zero_grad()
        loss_of(number).backward()  # type: ignore[no-untyped-call]
        if self._order.compute_s is None:
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        for optimizer, schedule in zip(self.inner, self._schedules, strict=True):
            optimizer.step()
            schedule.step()

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Of this rank's model as it is, on this rank's part of what is held out."""
        batches = self.text.held_out(EVALUATED, dist.get_rank(), dist.get_world_size())
        losses = [(len(read), float(self.model(read, after))) for read, after in batches]
        return sum(count * loss for count, loss in losses) / sum(count for count, _ in losses)
