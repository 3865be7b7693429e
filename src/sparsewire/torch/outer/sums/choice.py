"""The way to add up that is said to take the least time, chosen by all members alike.

Only ways that give the same sum, up to the order of its additions, are compared. To send sums by a
compressor changes the training, so that is done only if it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import Draws
from sparsewire.options import LinkFigures
from sparsewire.torch.outer.sums.engine import EngineSum
from sparsewire.torch.outer.sums.formula import (
    engine_bytes,
    exact_bytes,
    gather_bytes,
    normal,
    owned_bytes,
    union_share,
)
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.owned import Owned
from sparsewire.torch.outer.sums.parts import CHUNK, EXACT, MakeOperator, maker_of, parts_of
from sparsewire.torch.outer.sums.sums import Sums, Vector


class Way(Enum):
    """Ways that give the same sum."""

    GATHER = "gather"
    OWNED = "owned"
    ENGINE = "engine"


class Cost(NamedTuple):
    """What a round is predicted to cost a member."""

    nbytes: float
    """Sent, and as many received."""
    seconds: float


class Sample(NamedTuple):
    """What an operator does with a normal vector, by which costs are predicted."""

    message: int
    """Bytes of its message."""
    kept: int
    """Elements that are not zero."""
    is_cut: bool
    """Whether parts coded alone are what the whole is."""
    block: int | None
    """Elements of the blocks that its code marks; None if it marks none."""


def sums_for(
    communicator: Communicator,
    elements: int,
    operator: str | MakeOperator,
    draws: Draws,
    *,
    down: str | MakeOperator | None = None,
    chunk: int = CHUNK,
    timeout: float | None = None,
) -> Sums:
    """How to add up messages of `operator` of this many elements; collective, with one small sum.

    With `down`, sums come from owners as its messages. Otherwise the way is the fastest by the
    model. Raises CompressError for settings that an operator cannot have, and the engine's errors.
    """
    if down is not None:
        return Owned(elements, operator, draws, down, chunk)
    make = maker_of(operator)
    members = communicator.world_size
    costs = predict(make, elements, members, communicator.link, chunk)
    way = _agreed(communicator, costs, timeout)
    if way is Way.OWNED:
        return Owned(elements, operator, draws, EXACT, chunk)
    if way is Way.ENGINE:
        return EngineSum(make(elements), draws)
    return Gather(make(elements), draws)


def predict(
    make: MakeOperator, elements: int, members: int, link: LinkFigures, chunk: int = CHUNK
) -> Mapping[Way, Cost]:
    """What a round costs by each way that gives the sum of the operator's messages."""
    sample = sampled(make, elements, members, chunk)
    costs = {Way.GATHER: _gather_cost(sample, members, link)}
    if sample.is_cut:
        costs[Way.OWNED] = _owned_cost(sample, elements, members, link, chunk)
    if sample.block is not None:
        costs[Way.ENGINE] = _engine_cost(sample, elements, members, link)
    return costs


def sampled(make: MakeOperator, elements: int, members: int, chunk: int = CHUNK) -> Sample:
    """What the operator does with a normal vector of this many elements."""
    operator, vector = make(elements), normal(elements)
    code = operator.code(vector, Draws(0))
    values, marked = operator.reconstruct(code), operator.marked(code)
    return Sample(
        message=len(operator.pack(code)),
        kept=int(np.count_nonzero(values)),
        is_cut=all(
            np.array_equal(_compressed(make, vector[part]), values[part])
            for part in parts_of(elements, members, chunk)
        ),
        block=marked and marked.blocks.size,
    )


def _compressed(make: MakeOperator, part: Vector) -> Vector:
    return make(part.size).compress(part, Draws(0)) if part.size else part


def _gather_cost(sample: Sample, members: int, link: LinkFigures) -> Cost:
    return _cost(gather_bytes(sample.message, members), 1, members * sample.kept, link)


def _owned_cost(sample: Sample, elements: int, members: int, link: LinkFigures, chunk: int) -> Cost:
    sizes = [part.stop - part.start for part in parts_of(elements, members, chunk)]
    union = union_share(sample.kept / elements, members)
    up = [sample.message * size / elements for size in sizes]
    down = [exact_bytes(size, union) for size in sizes]
    return _cost(owned_bytes(up, down), 2, sample.kept + union * elements, link)


def _engine_cost(sample: Sample, elements: int, members: int, link: LinkFigures) -> Cost:
    nbytes = engine_bytes(elements, sample.kept, members, sample.block or 1)
    union = union_share(sample.kept / elements, members) * elements
    return _cost(nbytes, 2, sample.kept + union, link)


def _cost(nbytes: float, calls: int, added: float, link: LinkFigures) -> Cost:
    """Of so many bytes each way, calls of two latencies, and elements added."""
    seconds = nbytes * link.byte_s + 2 * calls * link.latency_s + added * link.merge_s
    return Cost(nbytes, seconds)


def _agreed(communicator: Communicator, costs: Mapping[Way, Cost], timeout: float | None) -> Way:
    """The way whose longest prediction, of all members, is the shortest."""
    seconds = np.array([costs[way].seconds if way in costs else np.inf for way in Way])
    communicator.all_reduce(seconds, op="max", timeout=timeout)
    return list(Way)[int(seconds.argmin())]
