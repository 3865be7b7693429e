"""Numbers drawn by a power law, as words, users and advertisements come up: few of them often."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_FACTOR = 0x9E3779B1
"""A prime, larger than any table: multiples of it visit every row once."""


def power_law(
    draws: np.random.Generator, count: int, exponent: float, shape: int | tuple[int, ...]
) -> Numbers:
    """Numbers below `count`, k about as often as (k + 1) to the power of -`exponent`.

    The continuous law is inverted, and rounded down: with an exponent of 1 it is the log-uniform
    distribution.
    """
    uniform, end = draws.random(shape), count + 1.0
    if exponent == 1:
        places = end**uniform
    else:
        rest = 1 - exponent
        places = (1 + uniform * (end**rest - 1)) ** (1 / rest)
    return np.minimum(places.astype(np.int64) - 1, count - 1)


def scattered(numbers: Numbers, count: int) -> Numbers:
    """Renames numbers below `count`, so that frequent ones are no neighbours."""
    return numbers * _FACTOR % count
