"""Final losses of trainings by methods that compress, and by the first method beside them.

They run on loopback, because losses do not depend on links, once for each of several seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from sparsewire.tools.training.workloads.measure import Order, Steps
from sparsewire.tools.training.workloads.method import Method

FINAL_SHARE = 0.1
"""The share of the steps at the end over which a final loss is averaged: batches differ."""


def compressing(methods: Sequence[str]) -> list[str]:
    """The methods after which a step may differ from that of gradients averaged in full."""
    return [name for name in methods if Method.parse(name).compresses]


@dataclass(frozen=True)
class Trainings:
    """How many steps of a training, and with how many seeds."""

    steps: int
    seeds: int

    @classmethod
    def checked(cls, steps: int, seeds: int, methods: Sequence[str]) -> Trainings:
        """Raises ValueError where none of the methods compresses: then there is no loss to tell."""
        if not compressing(methods):
            raise ValueError("--train is for what compresses: name feedback or diana, too")
        return cls(steps, seeds)

    def orders(self, order: Order) -> Iterator[Order]:
        """A training for each seed."""
        methods = list(dict.fromkeys([order.methods[0], *compressing(order.methods)]))
        for seed in range(order.seed, order.seed + self.seeds):
            yield replace(
                order, mode="training", methods=methods, steps=self.steps, warmup=0, seed=seed,
                interface=None,
            )  # fmt: skip


@dataclass(frozen=True)
class Losses:
    """Losses of one method; `over_first` are ratios to the first method's, by seed."""

    steps: int
    final: list[float]
    over_first: list[float]


def losses_of(runs: list[dict[str, Steps]]) -> dict[str, Losses]:
    """The losses of each method, from a run for each seed."""
    finals = {method: [_final(run[method].losses) for run in runs] for method in runs[0]}
    first = next(iter(finals.values()))
    steps = len(next(iter(runs[0].values())).losses)
    return {
        method: Losses(steps, own, [a / b for a, b in zip(own, first, strict=True)])
        for method, own in finals.items()
    }


def _final(losses: list[float]) -> float:
    return fmean(losses[-max(1, round(FINAL_SHARE * len(losses))) :])
