"""Progress bars on standard error, one for each thing that is under way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Move(Protocol):
    """Moves the bar of this name, which appears with its first move."""

    def __call__(self, name: str, done: float, total: float, state: str = "") -> None: ...


@contextmanager
def bars(*, stay: bool = False) -> Iterator[Move]:
    """Give the function that moves bars; they vanish in the end, unless they are to stay.

    Without a terminal there are none, but a line as each begins where they are to stay.
    """
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}", markup=False),
    )
    is_shown = console.is_terminal
    progress = Progress(*columns, console=console, transient=not stay, disable=not is_shown)
    shown: dict[str, TaskID] = {}

    def move(name: str, done: float, total: float, state: str = "") -> None:
        if name not in shown:
            # Ranks that are told nothing show nothing, so bars begin with the first move.
            progress.start()
            if stay and not is_shown:
                console.print(f"{name}: {state}", markup=False)
            shown[name] = progress.add_task(name, total=total, state=state)
        progress.update(shown[name], completed=done, total=total, state=state)

    try:
        yield move
    finally:
        # Stopping what has not started would print an empty line.
        if progress.live.is_started:
            progress.stop()
