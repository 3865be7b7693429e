"""Methods that average models by the rounds of an outer optimizer: the presets of sparsewire.torch.

Settings are the presets' own; what differs here is said in the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import SGD, Optimizer

from sparsewire.tools.training.outer.expected import of_rounds
from sparsewire.tools.training.outer.method import RATES, Averaged, Method, adamw
from sparsewire.tools.training.outer.order import Order
from sparsewire.torch.outer import PRESETS, OuterOptimizer, muon, preset

MakeInner = Callable[[nn.Module, float], Sequence[Optimizer]]

_OTHERS_SHARE = 0.1
"""AdamW's rate beside Muon's, for what is no matrix."""
_GATHERED = {"sums": "gather"}
"""Bytes must not depend on the speed of links, by which the way to add up is chosen otherwise."""
_AROUND = (0.5, 1.0, 2.0)
"""Shares of the published outer rate that tuning begins with."""
_KEPT = (
    "rounds",
    "contributed",
    "missed",
    "bytes_up",
    "bytes_down",
    "delta_norm",
    "residual_norm",
    "drift",
    "certificate",
    "seconds_waited",
)


def _momentum_free(model: nn.Module, rate: float) -> list[Optimizer]:
    """That of DeMo, whose momentum is what a replica owes."""
    return [SGD(model.parameters(), rate)]


def _muon(model: nn.Module, rate: float) -> list[Optimizer]:
    return muon(model, lr=rate, other_lr=_OTHERS_SHARE * rate)


@dataclass(frozen=True)
class Rounds:
    """A preset as it is compared: what is published, and `changes` of it.

    Without an outer rate, the outer optimizer has none of its own.
    """

    in_words: str
    outer_rate: float | None
    momentum: float = 0.0
    inner: MakeInner = adamw
    rates: tuple[float, ...] = RATES
    changes: Mapping[str, Any] = field(default_factory=dict)

    def method(self, name: str) -> Method:
        """The preset of this name as a method."""
        every = {**PRESETS[name].settings, **self.changes}["every"]
        published = [] if self.outer_rate is None else [self.outer_rate]
        outer_rates = tuple(share * rate for rate in published for share in _AROUND)
        attach = partial(self._attached, name)
        return Method(
            name,
            self.in_words,
            "gloo",
            self.inner,
            attach,
            self.rates,
            outer_rates,
            every,
        )

    @contextmanager
    def _attached(
        self,
        name: str,
        order: Order,
        module: nn.Module,
        model: nn.Module,
        inner: Sequence[Optimizer],
    ) -> Iterator[Averaged]:
        with preset(name, model, inner, **self._outer(order), **self.changes) as optimizer:
            settings = {**PRESETS[name].settings, **self.changes}
            told = partial(_told, optimizer, settings, model)
            yield Averaged(module, partial(_finish, optimizer), told)

    def _outer(self, order: Order) -> dict[str, Any]:
        if order.outer_rate is None:
            return {}
        is_nesterov = self.momentum > 0
        made = partial(SGD, lr=order.outer_rate, momentum=self.momentum, nesterov=is_nesterov)
        return {"outer": made}


def _finish(optimizer: OuterOptimizer) -> None:
    """Bring the replicas together where the last step was not the end of a round."""
    schedule = optimizer.schedule
    if schedule.delay or optimizer.steps % schedule.every:
        optimizer.sync()


def _told(
    optimizer: OuterOptimizer, settings: Mapping[str, Any], model: nn.Module
) -> dict[str, Any]:
    stats = optimizer.stats()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    fragments = optimizer.schedule.fragments
    by_formula = of_rounds(settings, fragments, optimizer.rounds, parameters, dist.get_world_size())
    return {"expected_up": by_formula, **{name: stats[name] for name in _KEPT}}


PRESET_METHODS = tuple(
    rounds.method(name)
    for name, rounds in {
        "local_sgd": Rounds("local SGD, H = 30", 1.0),
        # Published with 500 steps a round, for trainings of some ten thousand.
        "diloco": Rounds("DiLoCo, H = 30", 0.7, 0.9, changes={"every": 30}),
        "streaming_diloco": Rounds("Streaming DiLoCo, H = 30, FP4", 0.4, 0.9, changes=_GATHERED),
        "sparseloco": Rounds("SparseLoCo, H = 30", 1.0, changes=_GATHERED),
        "demo": Rounds("DeMo, each step", None, 0.0, _momentum_free, changes=_GATHERED),
        "muloco": Rounds("MuLoCo, H = 30", 0.7, 0.6, _muon, (0.0025, 0.005, 0.01)),
        "noloco": Rounds("NoLoCo, H = 50, pairs", 0.7, 0.5),
    }.items()
)
