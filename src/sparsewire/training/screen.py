"""What the comparison shows on the terminal while it runs: a bar for the training under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparsewire.experiment.events import Event
from sparsewire.training.comparison import Follower


@contextmanager
def following() -> Iterator[Follower]:
    """Show the bar on standard error; give the function that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("starting")

        def follow(training: str, steps: int, event: Event) -> None:
            if event["event"] == "step":
                description = f"{training}: loss {event['loss']:.3f}"
                done = event["number"] + 1
                progress.update(bar, description=description, total=steps, completed=done)

        yield follow
