"""Which algorithm the engine would choose on a link, for a few sizes and densities."""

from __future__ import annotations

from dataclasses import dataclass

from sparsewire.measure.prediction import predict
from sparsewire.options import LinkFigures

SIZES = (64 << 10, 1 << 20, 16 << 20, 100_000_000)
"""Bytes of the vector as a dense one."""

DENSITIES = (0.0001, 0.01, 0.1, 0.5)
_ITEM_BYTES = 4


@dataclass(frozen=True)
class Chosen:
    """What is chosen for float32 vectors of `bytes`, `density` of them named by each rank."""

    bytes: int
    density: float
    algorithm: str
    predicted_s: float


def choices(link: LinkFigures, ranks: int) -> list[Chosen]:
    """Every size with every density."""
    return [_choose(link, ranks, size, density) for size in SIZES for density in DENSITIES]


def _choose(link: LinkFigures, ranks: int, size: int, density: float) -> Chosen:
    length = size // _ITEM_BYTES
    elements = [max(1, round(length * density))] * ranks
    prediction = predict(link, "auto", length, _ITEM_BYTES, elements)
    return Chosen(size, density, prediction.chosen, prediction.seconds)
