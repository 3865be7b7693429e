"""A progress bar on standard error: how many epochs are done, and how good the model is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparsewire.optimize.train.report import Item, Setting
from sparsewire.optimize.train.run import Follow


@contextmanager
def following(epochs: int) -> Iterator[Follow]:
    """Give the function that moves the bar, which appears with the first thing it is told.

    So ranks that are told nothing show nothing.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task("", total=epochs, state="")

    def follow(item: Item) -> None:
        if isinstance(item, Setting):
            progress.update(task, description=f"{item.data}, ranks: {item.ranks}")
            progress.start()
        else:
            state = f"objective {item.objective:.6f}"
            progress.update(task, completed=item.epoch, state=state)

    try:
        yield follow
    finally:
        # Stopping what has not started would print an empty line.
        if progress.live.is_started:
            progress.stop()
