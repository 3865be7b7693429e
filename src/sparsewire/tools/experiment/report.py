"""An experiment's findings as people get them: tables, pictures and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.box import SIMPLE
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sparsewire.errors import ExperimentError
from sparsewire.tools.experiment.extras import require
from sparsewire.tools.measure.conditions import conditions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = TypeVar("Row")

_PAGE_WIDTH = 100


@dataclass(frozen=True)
class ResultFiles:
    """Files for the results, besides the terminal; None: not wanted.

    `conditions` are those of the moment at which this is made, before the work.
    """

    json: Path | None = None
    plot: Path | None = None
    conditions: Mapping[str, Any] = field(default_factory=conditions)

    def checked(self) -> ResultFiles:
        """The files; raises ExperimentError for no folder, or a plot that cannot be drawn."""
        for file in filter(None, (self.json, self.plot)):
            if file.is_dir() or not file.parent.is_dir():
                what = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
                raise ExperimentError(f"cannot write {file}: {what}")
        if self.plot is not None:
            require("matplotlib", extra="plots")
        if self.plot is not None and self.plot.suffix:
            # Importing matplotlib takes longer than many commands.
            from matplotlib.backend_bases import FigureCanvasBase

            known = FigureCanvasBase.get_supported_filetypes()
            if self.plot.suffix[1:].lower() not in known:
                raise ExperimentError(
                    f"cannot draw {self.plot}: its name must end in one of {', '.join(known)}"
                )
        return self

    def write(self, record: Mapping[str, Any], draw: Callable[[], Figure] | None) -> None:
        """Write what is wanted; raises ExperimentError, which says why, where that fails."""
        try:
            if self.json is not None:
                everything = _plain({"conditions": self.conditions, **record})
                self.json.write_text(json.dumps(everything, indent=1, allow_nan=False) + "\n")
            if self.plot is not None and draw is not None:
                draw().savefig(self.plot, dpi=150)
        except OSError as error:
            raise ExperimentError(f"cannot write {error.filename}: {error.strerror}") from None


def _plain(value: Any) -> Any:
    """The value for JSON: numbers that JSON cannot express are null."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


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


@dataclass(frozen=True)
class Column(Generic[Row]):
    """Numbers stand to the right, texts to the left."""

    head: str
    cell: Callable[[Row], str]
    is_text: bool = False


def table(
    columns: Sequence[Column[Row]],
    rows: Iterable[Row],
    title: str | None = None,
    stands_out: Callable[[Row], bool] = lambda row: False,
) -> Table:
    """A line for each row; those that stand out are yellow. Nothing in it is markup."""
    plain = title and escape(title)
    shown = Table(
        title=plain, title_justify="left", box=SIMPLE, pad_edge=False, collapse_padding=True
    )
    for column in columns:
        if column.is_text:
            shown.add_column(column.head, overflow="fold")
        else:
            shown.add_column(column.head, justify="right", no_wrap=True)
    for row in rows:
        cells = (escape(column.cell(row)) for column in columns)
        shown.add_row(*cells, style="yellow" if stands_out(row) else None)
    return shown


def number(value: float | None, scale: float = 1.0) -> str:
    """About three significant digits, at most three decimals; "-" for what was not measured."""
    if value is None:
        return "-"
    scaled = value * scale
    decimals = sum(scaled < bound for bound in (100, 10, 1))
    return f"{scaled:.{decimals}f}"


def new_figure(width: float, height: float) -> Figure:
    """An empty picture, so many inches wide and high, whose parts find room for their labels."""
    # Importing matplotlib takes longer than most commands run.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
