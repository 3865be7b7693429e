"""Figures of the link between the ranks, by which the engine chooses algorithms and formats."""

from __future__ import annotations

import math
from typing import NamedTuple


class LinkFigures(NamedTuple):
    """What a network and the processors behind it take, in seconds."""

    latency_s: float
    """Of one small message from rank to rank, both ends included."""
    byte_s: float
    """Of one byte that a rank sends, while all ranks send."""
    merge_s: float
    """Of one element in a sum: to pick it, to add it, to put it in its place."""

    def __str__(self) -> str:
        return ",".join(f"{figure:g}" for figure in self)


def parse_link_figures(text: str) -> LinkFigures:
    """Read "latency_s,byte_s,merge_s"; raises ValueError unless all three are positive numbers."""
    try:
        latency_s, byte_s, merge_s = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(_advice(text)) from None
    figures = LinkFigures(latency_s, byte_s, merge_s)
    if not all(math.isfinite(figure) and figure > 0 for figure in figures):
        raise ValueError(_advice(text))
    return figures


def _advice(text: str) -> str:
    return (
        f"SPARSEWIRE_LINK={text!r} is not three positive numbers: write the seconds of a message, "
        "of a byte and of an element, such as 5e-5,1e-9,4e-9"
    )
