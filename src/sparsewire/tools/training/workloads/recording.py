"""Gradients of real backward passes, recorded on one rank, and a model that replays them.

The replaying model has the parameters of the recorded one and a backward pass that computes
nothing: each gradient lies there when it is time for it. So all of DistributedDataParallel runs as
it does in a training, on any backend and with any hook, beside a processor that sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from sparsewire.tools.training.workloads.workload import Job

FORWARD_SHARE = 1 / 3
"""The forward pass's share of a step's computation: the backward pass takes twice as long."""
_FEW = 0.2


@dataclass(frozen=True)
class Kept:
    """One gradient: as it is, or only its non-zeros if these are few."""

    whole: Tensor | None
    places: Tensor
    values: Tensor

    @classmethod
    def of(cls, gradient: Tensor) -> Kept:
        none = torch.empty(0)
        if gradient.layout is torch.sparse_coo:
            return cls(gradient.coalesce().clone(), none, none)
        flat = gradient.detach().flatten()
        places = flat.nonzero().squeeze(1)
        if len(places) > _FEW * len(flat):
            return cls(gradient.detach().clone(), none, none)
        return cls(None, places.to(torch.int32), flat[places])

    def fill(self, gradient: Tensor) -> None:
        """Put it into a dense tensor."""
        if self.whole is not None:
            gradient.copy_(self.whole)
        else:
            gradient.zero_().view(-1)[self.places.long()] = self.values

    def fresh(self, parameter: Tensor) -> Tensor:
        """The gradient in a tensor of its own."""
        if self.whole is not None:
            return self.whole.clone()
        gradient = torch.empty_like(parameter)
        self.fill(gradient)
        return gradient


@dataclass(frozen=True)
class Recording:
    """Gradients of some steps by the parameters' places in the model.

    `ready` has, in the order of the backward pass, places and the share of it that was over.
    """

    steps: list[list[Kept]]
    ready: list[tuple[int, float]]


def record(job: Job, seed: int, rank: int, steps: int) -> Recording:
    """Run so many passes, forward and backward, at the model's first parameters."""
    recorded = []
    ready: list[tuple[int, float]] = []
    for step in range(steps):
        loss = job.model(*job.batch_of(seed, rank, step))
        ready = list(_backward(job.model, loss))
        recorded.append([Kept.of(_gradient(p)) for p in job.model.parameters()])
        job.model.zero_grad()
    return Recording(recorded, ready)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "every parameter takes part"
    return parameter.grad


def _backward(model: nn.Module, loss: Tensor) -> Iterator[tuple[int, float]]:
    """Run it; which parameter was ready when."""
    times: dict[int, float] = {}

    def note(place: int, _: Tensor) -> None:
        times[place] = time.perf_counter()

    hooks = [
        parameter.register_post_accumulate_grad_hook(partial(note, place))  # type: ignore[no-untyped-call]
        for place, parameter in enumerate(model.parameters())
    ]
    start = time.perf_counter()
    loss.backward()  # type: ignore[no-untyped-call]
    took = time.perf_counter() - start
    for hook in hooks:
        hook.remove()
    yield from ((place, (moment - start) / took) for place, moment in times.items())


class Replay(nn.Module):
    """Replays a recording with the parameters of its model; a pass takes `compute_s` of sleep."""

    def __init__(self, model: nn.Module, recording: Recording, compute_s: float) -> None:
        super().__init__()
        self.model, self._recording, self._compute_s = model, recording, compute_s
        self._parameters_of_model = list(model.parameters())

    def prepare(self, number: int) -> None:
        """Lay the gradients of a step where the pass will find them; nothing of it is timed."""
        for parameter, kept in zip(self._parameters_of_model, self._kept(number), strict=True):
            gradient = parameter.grad
            if gradient is not None and gradient.layout is torch.strided:
                kept.fill(gradient)
            else:
                parameter.grad = None

    def forward(self, number: int) -> Tensor:
        """A stand-in for a loss; its backward pass gives the gradients of a step."""
        time.sleep(self._compute_s * FORWARD_SHARE)
        kept, clock = self._kept(number), _Clock(self._compute_s * (1 - FORWARD_SHARE))
        loss = torch.zeros((), requires_grad=True)
        # The last operation comes first in the backward pass.
        for place, share in reversed(self._recording.ready):
            parameter = self._parameters_of_model[place]
            args = (parameter, loss, kept[place], share, clock)
            loss = _Replayed.apply(*args)  # type: ignore[no-untyped-call]
        return loss

    def _kept(self, number: int) -> list[Kept]:
        return self._recording.steps[number % len(self._recording.steps)]


class _Clock:
    """Sleeps until a share of the pass is over, which begins with the first call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._start: float | None = None

    def wait_for(self, share: float) -> None:
        now = time.perf_counter()
        self._start = now if self._start is None else self._start
        time.sleep(max(0.0, self._start + share * self._seconds - now))


class _Replayed(Function):
    """A scalar, of which a parameter's gradient is what was recorded."""

    @staticmethod
    def forward(
        ctx: Any, parameter: Tensor, before: Tensor, kept: Kept, share: float, clock: _Clock
    ) -> Tensor:
        ctx.parameter, ctx.kept, ctx.share, ctx.clock = parameter, kept, share, clock
        return before.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.clock.wait_for(ctx.share)
        lies_there = ctx.parameter.grad is not None
        gradient = None if lies_there else ctx.kept.fresh(ctx.parameter)
        return gradient, gradients[0], None, None, None
