"""What an experiment found, in the forms that people get it in: on the terminal and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from sparsewire.experiment.result_files import ResultFiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE_WIDTH = 100


@dataclass(frozen=True)
class Report:
    """Texts and tables for the terminal; all numbers, as JSON takes them; and a picture."""

    shown: Iterable[RenderableType]
    record: Mapping[str, Any]
    """Times in seconds, sizes in bytes. The conditions are added where it is written."""
    draw: Callable[[], Figure] | None = None

    def present(self, files: ResultFiles) -> None:
        """Print it and write the files. Raises ExperimentError where one cannot be written."""
        console = report_console()
        for part in self.shown:
            console.print(part, markup=False, soft_wrap=isinstance(part, str | Text))
        files.write(self.record, self.draw)


def report_console() -> Console:
    """A console as wide as the terminal; 100 columns where the output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_PAGE_WIDTH, highlight=False)
