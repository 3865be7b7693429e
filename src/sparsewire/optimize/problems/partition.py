"""Divides rows among workers: in their order, sorted by label, or shuffled.

Most functions return the row numbers of each worker. Sizes differ by at most one; with `equal`
they do not differ, and the last rows that are too many are left out.
"""

from __future__ import annotations

import numpy as np

from sparsewire.optimize.problems.problem import Floats, Integers


def by_index(rows: int, workers: int, *, equal: bool = False) -> list[Integers]:
    """Consecutive rows for each worker. Raises ValueError where there are too few rows."""
    return _dealt(np.arange(rows), workers, equal)


def by_label(labels: Floats, workers: int, *, equal: bool = False) -> list[Integers]:
    """Rows sorted by label: workers differ as much as they can, most have one class only."""
    return _dealt(np.argsort(labels, kind="stable"), workers, equal)


def shuffled(rows: int, workers: int, seed: int, *, equal: bool = False) -> list[Integers]:
    """Rows in a random order: workers are alike, as far as the sizes of their parts allow."""
    return _dealt(np.random.default_rng(seed).permutation(rows), workers, equal)


def share(count: int, rank: int, world_size: int) -> slice:
    """The part of `count` items in a row that belongs to `rank`; sizes differ by at most one."""
    return slice(rank * count // world_size, (rank + 1) * count // world_size)


def _dealt(order: Integers, workers: int, equal: bool) -> list[Integers]:
    if not 1 <= workers <= len(order):
        raise ValueError(f"{len(order)} rows cannot be divided among {workers} workers")
    if equal:
        order = order[: len(order) // workers * workers]
    return np.array_split(order, workers)
