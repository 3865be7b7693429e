"""What the demo shows on the terminal while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparsewire.demo.comparison import Follower
from sparsewire.experiment.events import Event

_STATES = {
    "launched": "starting the workers",
    "trained": "measuring a step without communication",
    "alone": "done",
}


@contextmanager
def following(console: Console, backends: list[str], steps: int) -> Iterator[Follower]:
    """Show one bar per backend; give the function that moves them."""
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console) as progress:
        tasks = {
            backend: progress.add_task(backend, total=steps, start=False, state="")
            for backend in backends
        }

        def follow(backend: str, event: Event) -> None:
            task = tasks[backend]
            if event["event"] == "launched":
                progress.start_task(task)
            if event["event"] == "step":
                state = f"loss {event['loss']:.3f}"
                progress.update(task, completed=event["number"] + 1, state=state)
            else:
                progress.update(task, state=_STATES[event["event"]])

        yield follow
