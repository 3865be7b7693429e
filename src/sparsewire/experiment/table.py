"""Tables on the terminal: each column has a head, and makes its cell from what a row shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.box import SIMPLE
from rich.table import Table

Row = TypeVar("Row")


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
    """A line for each row; those that stand out are yellow."""
    shown = Table(
        title=title, title_justify="left", box=SIMPLE, pad_edge=False, collapse_padding=True
    )
    for column in columns:
        if column.is_text:
            shown.add_column(column.head, overflow="fold")
        else:
            shown.add_column(column.head, justify="right", no_wrap=True)
    for row in rows:
        cells = (column.cell(row) for column in columns)
        shown.add_row(*cells, style="yellow" if stands_out(row) else None)
    return shown


def number(value: float | None, scale: float = 1.0) -> str:
    """About three significant digits, at most three decimals; "-" for what was not measured."""
    if value is None:
        return "-"
    scaled = value * scale
    decimals = sum(scaled < bound for bound in (100, 10, 1))
    return f"{scaled:.{decimals}f}"
