"""The one rule by which the rates of all methods are chosen.

Trials are shorter than the trainings, and their seed is none of the trainings'. Where there is an
outer rate, it is tried first: at half the published one, this one, and twice, with the inner
optimizer's peak rate in the middle of its three first ones; then the inner one is tried at its
three, with the best outer one. As long as the best one is the smallest or the largest tried, one
more is tried beyond it, by the same factor, at most three times. The best is that of the lowest
held-out loss at the end of the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sparsewire.tools.training.outer.method import Method
from sparsewire.tools.training.outer.order import Order

SEED = 1000
FURTHER = 3

Losses = dict[Order, float]
"""Of orders, the final held-out ones."""
Train = Callable[[list[Order]], list[float]]
"""Final held-out losses of some orders."""
Rate = Literal["rate", "outer_rate"]


@dataclass(frozen=True)
class Tuned:
    """The best order, and each that was tried with its loss."""

    best: Order
    tried: list[tuple[Order, float]]


def tune_all(methods: Sequence[Method], steps: int, train: Train) -> list[Tuned]:
    """Tune each method with trainings of so many steps; all wait for the trials of all.

    With 0 steps there are no trials, and the best is the one in the middle.
    """
    if not steps:
        return [Tuned(_trial(method, steps), []) for method in methods]
    searches = [_tune(method, steps) for method in methods]
    wanted = {number: next(search) for number, search in enumerate(searches)}
    tuned: dict[int, Tuned] = {}
    while wanted:
        losses = iter(train([order for orders in wanted.values() for order in orders]))
        told = {number: {order: next(losses) for order in each} for number, each in wanted.items()}
        wanted = {}
        for number, found in told.items():
            try:
                wanted[number] = searches[number].send(found)
            except StopIteration as end:
                tuned[number] = end.value
    return [tuned[number] for number in range(len(methods))]


def _tune(method: Method, steps: int) -> Generator[list[Order], Losses, Tuned]:
    """Yields orders to try, is sent their losses, and returns what is best."""
    best, tried = _trial(method, steps), Losses()
    if method.outer_rates:
        outer = [_at(best, "outer_rate", rate) for rate in method.outer_rates]
        tried |= yield from _search(outer, "outer_rate")
        best = min(tried, key=tried.__getitem__)
    tried |= yield from _search([_at(best, "rate", rate) for rate in method.rates], "rate")
    best = min(tried, key=tried.__getitem__)
    return Tuned(best, list(tried.items()))


def _trial(method: Method, steps: int) -> Order:
    """At the inner rate in the middle, and the outer one as published."""
    rate, published = (
        rates[len(rates) // 2] if rates else None for rates in (method.rates, method.outer_rates)
    )
    return Order(method.name, rate or 0.0, published, SEED, steps, steps)


def _search(orders: list[Order], rate: Rate) -> Generator[list[Order], Losses, Losses]:
    """Try orders that differ in one rate, and those beyond the best."""
    tried = yield orders
    for _ in range(FURTHER):
        further = _beyond(tried, rate)
        if further is None:
            break
        tried |= yield [further]
    return tried


def _beyond(tried: Losses, rate: Rate) -> Order | None:
    """The next one beyond the best, where this is at an end."""
    best = min(tried, key=tried.__getitem__)
    rates = sorted(float(getattr(order, rate)) for order in tried)
    if getattr(best, rate) == rates[0]:
        return _at(best, rate, rates[0] ** 2 / rates[1])
    if getattr(best, rate) == rates[-1]:
        return _at(best, rate, rates[-1] ** 2 / rates[-2])
    return None


def _at(order: Order, rate: Rate, value: float) -> Order:
    # Rates that are computed in two ways are the same one.
    exact = float(f"{value:.6g}")
    return replace(order, rate=exact) if rate == "rate" else replace(order, outer_rate=exact)
