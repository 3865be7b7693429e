"""Adds up the time spent in `with` blocks."""

from __future__ import annotations

import time


class Stopwatch:
    """`seconds` is the wall-clock time of all blocks so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started
