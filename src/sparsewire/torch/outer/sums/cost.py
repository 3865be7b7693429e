"""The cost model: bytes and seconds of a round by each way that gives the same sum."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from sparsewire.options import LinkFigures
from sparsewire.torch.outer.sums.formula import (
    engine_bytes,
    exact_bytes,
    gather_bytes,
    owned_bytes,
    union_share,
)
from sparsewire.torch.outer.sums.parts import CHUNK, parts_of
from sparsewire.torch.outer.sums.sample import Sample


class Way(Enum):
    """Ways that give the same sum, up to the order of its additions."""

    GATHER = "gather"
    OWNED = "owned"
    """With exact sums."""
    ENGINE = "engine"


class Cost(NamedTuple):
    """What a round is predicted to cost a member."""

    nbytes: float
    """Sent, and as many received."""
    seconds: float


def predict(
    sample: Sample, members: int, link: LinkFigures, chunk: int = CHUNK
) -> Mapping[Way, Cost]:
    """What a round costs by each way that is possible, if members keep independent places."""
    costs = {Way.GATHER: _gathered(sample, members, link)}
    if sample.is_cut:
        costs[Way.OWNED] = _owned(sample, members, link, chunk)
    if sample.block is not None:
        costs[Way.ENGINE] = _by_engine(sample, members, link)
    return costs


def _gathered(sample: Sample, members: int, link: LinkFigures) -> Cost:
    kept = sample.share * sample.elements
    return _cost(gather_bytes(sample.message, members), 1, members * kept, link)


def _owned(sample: Sample, members: int, link: LinkFigures, chunk: int) -> Cost:
    sizes = [part.stop - part.start for part in parts_of(sample.elements, members, chunk)]
    up = [sample.message * size / sample.elements for size in sizes]
    down = [exact_bytes(size, union_share(sample.share, members)) for size in sizes]
    return _cost(owned_bytes(up, down), 2, _added_once(sample, members), link)


def _by_engine(sample: Sample, members: int, link: LinkFigures) -> Cost:
    kept = round(sample.share * sample.elements)
    nbytes = engine_bytes(sample.elements, kept, members, sample.block or 1)
    return _cost(nbytes, 2, _added_once(sample, members), link)


def _added_once(sample: Sample, members: int) -> float:
    """Elements that a member adds as an owner, and those of the sum."""
    return sample.elements * (sample.share + union_share(sample.share, members))


def _cost(nbytes: float, calls: int, added: float, link: LinkFigures) -> Cost:
    """Of so many bytes each way, calls of two latencies each, and elements added."""
    seconds = nbytes * link.byte_s + 2 * calls * link.latency_s + added * link.merge_s
    return Cost(nbytes, seconds)
