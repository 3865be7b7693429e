"""Records a training on one rank: held-out losses, wire bytes, and the time at which steps end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from sparsewire.tools.lab import Lab
from sparsewire.tools.measure.conditions import Traffic


@dataclass
class Recorder:
    """Nothing of it is sent before `over_ranks`, so the interface counts the training alone."""

    held_out_loss: Callable[[], float]
    losses: list[float] = field(default_factory=list)
    """Held-out losses, the first one before the first step."""
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    """Bytes since the first step, at each loss."""
    ends_s: list[float] = field(default_factory=list)
    """Seconds since the first step, at the end of each."""

    def begin(self) -> None:
        """The first step comes next; collective."""
        dist.barrier()
        self._first, self._start = Traffic.now(Lab.interface), time.perf_counter()

    def end_step(self) -> None:
        self.ends_s.append(time.perf_counter() - self._start)

    def evaluate(self) -> None:
        """Take the loss, and what was sent up to now."""
        now = Traffic.now(Lab.interface)
        self.up.append(now.up - self._first.up)
        self.down.append(now.down - self._first.down)
        self.losses.append(self.held_out_loss())

    def over_ranks(self) -> dict[str, Any]:
        """Means over all ranks, and the end of each step on the slowest one; collective."""
        means = {name: _mean(getattr(self, name)) for name in ("losses", "up", "down")}
        most = {"most_up": _most(self.up), "ends_s": _most(self.ends_s)}
        return {**means, **most}


def _mean(values: list[float] | list[int]) -> list[float]:
    return [each / dist.get_world_size() for each in _reduced(values, dist.ReduceOp.SUM)]


def _most(values: list[float] | list[int]) -> list[float]:
    return _reduced(values, dist.ReduceOp.MAX)


def _reduced(values: list[float] | list[int], op: dist.ReduceOp.RedOpType) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op)
    found: list[float] = tensor.tolist()
    return found
