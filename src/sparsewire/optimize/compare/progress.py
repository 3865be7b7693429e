"""Progress bars on standard error: one for each method, by how close it is to the solution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sparsewire.optimize.compare.run import Follow
from sparsewire.optimize.compare.trace import Point


@contextmanager
def following(accuracy: float) -> Iterator[Follow]:
    """Give the function that moves the bars, which appear with the first thing it is told.

    A bar is full where the squared distance is `accuracy` of what it was.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    started: dict[str, tuple[TaskID, float]] = {}

    def follow(label: str, point: Point) -> None:
        if label not in started:
            progress.start()
            task = progress.add_task(label, total=-math.log(accuracy), state="")
            started[label] = task, point.distance
        task, first = started[label]
        share = point.distance / first
        done = max(0.0, -math.log(share)) if share > 0 else 0.0
        state = f"|x - x*|² {share:.1e} of the first after {point.rounds:,} rounds"
        progress.update(task, completed=done, state=state)

    try:
        yield follow
    finally:
        # Stopping what has not started would print an empty line.
        if progress.live.is_started:
            progress.stop()
