"""Methods that average models by the rounds of an outer optimizer: the presets of sparsewire.torch.

Settings are the presets' own; what differs here is said in the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from sparsewire.tools.training.outer.method import Averaged, Method, RATES, adamw
from sparsewire.tools.training.outer.order import Order
from sparsewire.torch.outer import preset
from sparsewire.torch.outer.presets import PRESETS, muon

MakeOuter = Callable[[list[nn.Parameter]], Optimizer]

_AROUND = (0.5, 1.0, 2.0)
_MUON_RATES = (0.005, 0.01, 0.02)
_OTHERS_SHARE = 0.1
"""AdamW's rate beside Muon's, for what is no matrix."""


def _sgd(rate: float, momentum: float = 0.0) -> MakeOuter:
    return lambda parameters: SGD(parameters, rate, momentum, nesterov=momentum > 0)


def _rounds(
    name: str,
    in_words: str,
    published: float,
    outer: Callable[[float], MakeOuter],
    inner: Callable[[nn.Module, float], Sequence[Optimizer]] = adamw,
    rates: tuple[float, ...] = RATES,
    **changes: Any,
) -> Method:
    """The preset of this name, with the published outer rate."""

    @contextmanager
    def attached(
        order: Order, module: nn.Module, model: nn.Module, inner: Sequence[Optimizer]
    ) -> Iterator[Averaged]:
        rate = order.outer_rate or published
        with preset(name, model, inner, outer=outer(rate), **changes) as optimizer:
            yield Averaged(module, optimizer.sync, lambda: _told(optimizer.stats()))

    every = changes.get("every", PRESETS[name].settings["every"])
    outer_rates = tuple(share * published for share in _AROUND)
    return Method(name, in_words, "gloo", inner, attached, rates, outer_rates, every)


def _told(stats: Any) -> Mapping[str, Any]:
    return {name: value for name, value in vars(stats).items() if isinstance(value, int | float)}
