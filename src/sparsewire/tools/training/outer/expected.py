"""Bytes that a replica's interface should send in a training by formula, beside measured ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsewire.compress import as_contraction, parse
from sparsewire.torch.outer.sums.formula import (
    FLOAT_BYTES,
    dense_bytes,
    gather_bytes,
    link_bytes,
    message_bytes,
    pairs_bytes,
)

_ARRIVAL_BYTES = 280
"""Of what a replica tells each other one in a round beside its message: arrival and vote."""
_SMALL = 2
"""The collectives that these take."""


def of_gradients(steps: int, parameters: int, ranks: int) -> float:
    """A dense sum in each step."""
    return steps * link_bytes(dense_bytes(parameters, ranks), ranks)


def of_rounds(
    settings: Mapping[str, Any], fragments: int, rounds: int, parameters: int, ranks: int
) -> float:
    """So many rounds of fragments of equal size, by the preset's settings."""
    elements = parameters // fragments
    nbytes, collectives = _added(settings, elements, ranks)
    small = _ARRIVAL_BYTES * (ranks - 1)
    return rounds * link_bytes(nbytes + small, ranks, _SMALL + collectives)


def _added(settings: Mapping[str, Any], elements: int, ranks: int) -> tuple[float, int]:
    """Bytes and collectives of one sum."""
    compressor = settings.get("compressor", "dense")
    if settings.get("topology") == "pairs":
        # The delta, and the point that it starts from.
        return 2 * pairs_bytes(FLOAT_BYTES * elements, ranks), 2
    if compressor == "dense":
        return dense_bytes(elements, ranks), 1
    message = message_bytes(as_contraction(parse(compressor, elements)))
    return gather_bytes(message, ranks), 1
