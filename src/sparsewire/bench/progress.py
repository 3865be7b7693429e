"""A progress bar on standard error: which case is being measured, and how far."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sparsewire.bench.job import Case
from sparsewire.bench.job import Progress as Step


class ProgressBar:
    """Shows steps of the given cases; a context manager."""

    def __init__(self, cases: list[Case]) -> None:
        self._cases = cases
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=len(cases))

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, step: Step) -> None:
        """Take note of a step; cases count alike, whatever they take."""
        case = self._cases[step.case]
        self._bar.update(
            self._task,
            description=f"{case.pattern}, {case.elements:,} elements, density {case.density:g}",
            completed=step.case + step.done / step.total,
        )
