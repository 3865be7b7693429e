"""The table that people read: one per pattern and size, 100 columns wide."""

import itertools

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from sparsewire.bench.result import CaseResult, Measurement

_COLUMNS = (
    "density",
    "backend",
    "median\nms",
    "p99\nms",
    "algbw\nMB/s",
    "busbw\nMB/s",
    "sent\nMB",
    "limit\nms",
    "times\nlimit",
    "CPU\nms",
    "against\ngloo",
)


def print_tables(console: Console, results: list[CaseResult]) -> None:
    """Print one table per pattern and size, densities below each other."""
    for (pattern, elements), group in itertools.groupby(results, _table_of):
        console.print(_table(f"{pattern}, {elements:,} elements", list(group)))


def _table_of(result: CaseResult) -> tuple[str, int]:
    return result.pattern, result.elements


def _table(title: str, results: list[CaseResult]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "backend" else "right", no_wrap=True)
    for result in results:
        for name, measured in result.backends.items():
            table.add_row(f"{result.density:g}", name.removesuffix("-torch"), *_cells(measured))
    return table


def _cells(measured: Measurement) -> list[str]:
    speedup = measured.speedup_over_gloo
    return [
        number(measured.median_s, 1e3),
        number(measured.p99_s, 1e3),
        number(measured.algbw_bytes_per_s, 1e-6),
        number(measured.busbw_bytes_per_s, 1e-6),
        number(measured.bytes_sent_per_rank, 1e-6),
        number(measured.limit_s, 1e3),
        number(measured.limit_ratio),
        number(measured.cpu_s, 1e3),
        number(speedup) + ("" if speedup is None else "x"),
    ]


def number(value: float | None, scale: float = 1.0) -> str:
    """About three significant digits, at most three decimals; "-" for what was not measured."""
    if value is None:
        return "-"
    scaled = value * scale
    decimals = sum(scaled < bound for bound in (100, 10, 1))
    return f"{scaled:.{decimals}f}"
