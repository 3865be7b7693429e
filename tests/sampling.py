"""Samples of combinations of many parameters; every value comes up about equally often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def balanced_sample(seed: int, axes: Sequence[Sequence[Any]], count: int) -> list[tuple[Any, ...]]:
    """`count` combinations of a level of each axis."""
    random = np.random.default_rng(seed)
    return list(zip(*(_balanced(random, levels, count) for levels in axes), strict=True))


def _balanced(random: np.random.Generator, levels: Sequence[Any], count: int) -> list[Any]:
    return [levels[i % len(levels)] for i in random.permutation(count)]
