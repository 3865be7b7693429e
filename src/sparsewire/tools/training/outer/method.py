"""A way to average replicas: its optimizer, what attaches it to a model, and rates to tune."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from sparsewire.tools.training.outer.order import Order

RATES = (5e-4, 1e-3, 2e-3)
"""Peaks of AdamW's rate that tuning begins with."""

CLIP = 1.0
"""The largest norm of a gradient; a larger one is scaled down."""
RISING = 30
"""Steps in which a rate rises to its peak."""


class Averaged(NamedTuple):
    """A model whose replicas are averaged, while a training lasts."""

    module: nn.Module
    """Gives the loss in place of the model's own pass."""
    finish: Callable[[], None]
    """Brings all replicas to one point, at the end; collective."""
    told: Callable[[], Mapping[str, Any]]
    """What the method itself has to tell of the training."""


@dataclass(frozen=True)
class Method:
    """`rates` are the peaks of the inner optimizer's rate to begin tuning with, `outer_rates` those
    of the outer one, the published one in the middle; none where there is none."""

    name: str
    in_words: str
    backend: str
    inner: Callable[[nn.Module, float], Sequence[Optimizer]]
    """Makes the optimizers of the training loop at a peak rate; the last one steps last."""
    attach: Callable[
        [Order, nn.Module, nn.Module, Sequence[Optimizer]], AbstractContextManager[Averaged]
    ]
    """Takes the order, the module whose pass gives the loss, the model in it, the optimizers."""
    rates: tuple[float, ...] = RATES
    outer_rates: tuple[float, ...] = ()
    period: int = 1
    """Steps after which what is sent repeats itself."""
    tuned_as: str | None = None
    """The method whose rates are this one's, because both do the same arithmetic."""


def adamw(model: nn.Module, rate: float) -> list[Optimizer]:
    """As GPTs are trained with."""
    betas = (0.9, 0.95)
    return [torch.optim.AdamW(model.parameters(), rate, betas, weight_decay=0.1, fused=True)]


def rising(step: int) -> float:
    """The share of the peak rate in the first steps."""
    return min(1.0, (step + 1) / RISING)
