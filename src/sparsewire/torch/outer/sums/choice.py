"""How a fragment's contributions are added: the way that was asked for, or the one that is said to
take the least time, chosen by all members alike.

Only ways that give the same sum, up to the order of its additions, are compared. To send sums by a
compressor changes the training, so that is done only if it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import Draws, as_contraction
from sparsewire.torch.outer.sums.cost import Cost, Way, predict
from sparsewire.torch.outer.sums.dense import Dense
from sparsewire.torch.outer.sums.engine import EngineSum
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.owned import Owned
from sparsewire.torch.outer.sums.pairs import Pairs
from sparsewire.torch.outer.sums.parts import CHUNK, EXACT, MakeOperator, maker_of
from sparsewire.torch.outer.sums.sample import sampled
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector

AUTO = "auto"
WAYS = (AUTO, *(way.value for way in Way))
DENSE = "dense"
ALL, PAIRS = TOPOLOGIES = ("all", "pairs")

Make = Callable[[Communicator, Draws, float], Sums]
"""Makes a way for the members of a communicator, which may take a collective of some timeout."""


def sums_for(
    compressor: str | MakeOperator,
    elements: int,
    *,
    way: str = AUTO,
    down: str | MakeOperator | None = None,
    topology: str = ALL,
    chunk: int = CHUNK,
    seed: int = 0,
) -> Sums:
    """How to add up vectors of this many elements, sent by a compressor, or whole if it is "dense".

    `way` is "gather"; "owned", whose sums come by the operator `down`, or by the compressor if that
    is None, with what this loses owed by owners; "engine", for sparsifiers; or "auto": the fastest
    by the model of those whose sum is that of the messages, or owners if `down` is given. "exact"
    as `down` loses nothing. `topology` "pairs" adds up random pairs, drawn from `seed`, alike on
    all members. Owners' parts are whole chunks of `chunk` elements. Unbiased operators are scaled,
    so that they contract.

    Raises ValueError for settings that do not fit together, and CompressError for operators.
    """
    _check(way, down, topology)
    if compressor == DENSE and topology == ALL and down is None:
        return Dense(elements)
    up = _contracting("identity" if compressor == DENSE else compressor)
    up(elements)
    if topology == PAIRS:
        return Chosen(elements, lambda _, draws, __: Pairs(up(elements), draws, seed), seed)
    if down is not None or way == Way.OWNED.value:
        answers = up if down is None else _contracting(down)
        answers(elements)
        return Chosen(elements, lambda _, d, __: Owned(elements, up, d, answers, chunk), seed)
    return Chosen(elements, _same_sum(up, elements, way, chunk), seed)


def _check(way: str, down: str | MakeOperator | None, topology: str) -> None:
    if way not in WAYS:
        raise ValueError(f"sums={way!r} is not known: use one of {', '.join(WAYS)}")
    if topology not in TOPOLOGIES:
        raise ValueError(f"topology={topology!r} is not known: use {ALL} or {PAIRS}")
    if topology == PAIRS and (way not in (AUTO, Way.GATHER.value) or down is not None):
        raise ValueError("pairs give each other their messages: leave out sums= and down=")
    if down is not None and way not in (AUTO, Way.OWNED.value):
        raise ValueError(f'down= is for sums of owners, not for "{way}": leave it out')


def _contracting(operator: str | MakeOperator) -> MakeOperator:
    make = maker_of(operator)
    return lambda elements: as_contraction(make(elements))


def _same_sum(up: MakeOperator, elements: int, way: str, chunk: int) -> Make:
    """Makes the way that is named, or the fastest."""
    ways: dict[Way, Callable[[Draws], Sums]] = {
        Way.GATHER: lambda draws: Gather(up(elements), draws),
        Way.OWNED: lambda draws: Owned(elements, up, draws, EXACT, chunk),
        Way.ENGINE: lambda draws: EngineSum(up(elements), draws),
    }
    if way != AUTO:
        ways[Way(way)](Draws(0))  # Raises now what it would raise in the first round.
        return lambda _, draws, __: ways[Way(way)](draws)
    sample = sampled(up, elements, chunk)

    def fastest(communicator: Communicator, draws: Draws, timeout: float) -> Sums:
        costs = predict(sample, communicator.world_size, communicator.link, chunk)
        return ways[agreed(communicator, costs, timeout)](draws)

    return fastest


def agreed(communicator: Communicator, costs: Mapping[Way, Cost], timeout: float) -> Way:
    """The way whose longest prediction, of all members, is the shortest; collective."""
    seconds = np.array([costs[way].seconds if way in costs else np.inf for way in Way])
    communicator.all_reduce(seconds, op="max", timeout=timeout)
    return list(Way)[int(seconds.argmin())]


class Chosen(Sums):
    """A way for the present members: made at their first round, and anew after `reset`.

    What is drawn at random differs between members.
    """

    def __init__(self, elements: int, make: Make, seed: int) -> None:
        super().__init__(elements)
        self._make = make
        self._seed = seed
        self._resets = 0
        self.way: Sums | None = None
        """The way of these members; None before their first round."""

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        if self.way is None:
            draws = Draws(self._seed, communicator.rank, f"outer {self._resets}")
            self.way = self._make(communicator, draws, timeout)
        if self._parameters is not None:
            self.way.follow(self._parameters)
        return self.way.run(communicator, vector, timeout)

    def take_off(self, sent: Any, residual: Vector) -> None:
        assert self.way, "it was sent before the members changed"
        self.way.take_off(sent, residual)

    def commit(self) -> None:
        if self.way:
            self.way.commit()

    def abort(self) -> None:
        if self.way:
            self.way.abort()

    def reset(self, residual: Vector | None = None) -> float:
        lost = self.way.reset(residual) if self.way else 0.0
        self.way = None
        self._resets += 1
        return lost
