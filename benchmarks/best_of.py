"""The best of several times: what the programs of this folder that time calls in turn share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def best_of(rounds: int, task: Callable[[], T]) -> tuple[float, T]:
    """The shortest time of a call in s, and its last result; `rounds` is at least 1."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = task()
        times.append(time.perf_counter() - start)
    return min(times), result
