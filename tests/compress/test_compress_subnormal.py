"""Below the smallest normal number: the mean is kept, although few numbers are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparsewire.compress import Draws, parse

DRAWS = 20_000
WORST = 5
"""Standard errors that a mean of so many draws is off by, at most: one in a million is further."""
UNITS = np.array([3.0, -1.0, 0.0, 2.0, 5.0, 1.0, -4.0, 7.0])
"""Multiples of the smallest number that there is."""
NAMES = [
    *("ternary:2:8", "ternary:inf:8", "ternary:1:8", "qsgd:7:8"),
    *("dithering:2:2:8", "dithering:4:inf:8", "dithering:7:3:8", "dithering:127:2:8"),
    *("natural-dithering:2:2:8", "natural-dithering:4:inf:8", "natural-dithering:127:2:8"),
]


def draws(name: str, x: NDArray[Any]) -> NDArray[Any]:
    """So many draws, in units: blocks of one long vector are as many of a short one."""
    operator = parse(name, DRAWS * x.size, x.dtype)
    drawn = operator.decode(operator.encode(np.tile(x, DRAWS), Draws(2)))
    unit = np.longdouble(np.finfo(x.dtype).smallest_subnormal)
    return drawn.astype(np.longdouble).reshape(DRAWS, x.size) / unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("times", [1, 77, 2**17])
@pytest.mark.parametrize("name", NAMES)
def test_the_mean_is_kept(name: str, times: int, dtype: type) -> None:
    expected = times * UNITS
    x = (expected * np.longdouble(np.finfo(dtype).smallest_subnormal)).astype(dtype)
    drawn = draws(name, x)
    error = np.asarray(drawn.std(axis=0) / np.sqrt(DRAWS), float)
    bias = np.asarray(abs(drawn.mean(axis=0) - expected), float)
    assert (bias <= WORST * error + 1e-9 * times).all()


@pytest.mark.parametrize("name", NAMES)
def test_normal_blocks_are_none_of_it(name: str) -> None:
    """A block whose norm is normal has the same code beside a subnormal one as alone."""
    operator = parse(name, 16)
    x = np.concatenate([UNITS, UNITS * np.finfo(np.float32).smallest_subnormal])
    scales = operator.code(x, Draws(1)).scales
    alone = operator.code(np.concatenate([UNITS, np.zeros(8)]), Draws(1)).scales
    assert scales[0] == alone[0]
    assert scales[1] > 0
