"""The tables that people read: one per pattern and size, 100 columns wide."""

from __future__ import annotations

import itertools

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from sparsewire.bench.result import CaseResult, Measurement

_DENSE_COLUMNS = (
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
_SPARSE_COLUMNS = (
    "density",
    "algorithm",
    "median\nms",
    "model\nms",
    "sent\nMB",
    "limit\nms",
    "times\nlimit",
    "CPU\nms",
    "against\ngloo",
    "its\nsparse",
)
_TEXTS = {"backend", "algorithm"}


def print_tables(console: Console, results: list[CaseResult]) -> None:
    """Print one table per pattern and size, densities below each other."""
    for (pattern, elements), group in itertools.groupby(results, _table_of):
        console.print(_table(f"{pattern}, {elements:,} elements", list(group)))


def _table_of(result: CaseResult) -> tuple[str, int]:
    return result.pattern, result.elements


def _table(title: str, results: list[CaseResult]) -> Table:
    is_sparse = any(m.algorithm for result in results for m in result.backends.values())
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    for name in _SPARSE_COLUMNS if is_sparse else _DENSE_COLUMNS:
        table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
    cells = _sparse_cells if is_sparse else _dense_cells
    for result in results:
        for name, measured in result.backends.items():
            shown = algorithm(name, measured) if is_sparse else name
            table.add_row(f"{result.density:g}", shown, *cells(measured))
    return table


def _dense_cells(measured: Measurement) -> list[str]:
    return [
        number(measured.median_s, 1e3),
        number(measured.p99_s, 1e3),
        number(measured.algbw_bytes_per_s, 1e-6),
        number(measured.busbw_bytes_per_s, 1e-6),
        *_costs(measured),
        _times(measured.speedup_over_gloo),
    ]


def _sparse_cells(measured: Measurement) -> list[str]:
    return [
        number(measured.median_s, 1e3),
        number(measured.predicted_s, 1e3),
        *_costs(measured),
        _times(measured.speedup_over_gloo),
        _times(measured.speedup_over_gloo_sparse),
    ]


def _costs(measured: Measurement) -> list[str]:
    return [
        number(measured.bytes_sent_per_rank, 1e-6),
        number(measured.limit_s, 1e3),
        number(measured.limit_ratio),
        number(measured.cpu_s, 1e3),
    ]


def algorithm(backend: str, measured: Measurement) -> str:
    """The algorithm that ran, in brackets where it was chosen; of others the backend."""
    if measured.algorithm is None:
        return backend
    return f"({measured.chosen})" if measured.algorithm == "auto" else measured.algorithm


def _times(speedup: float | None) -> str:
    return number(speedup) + ("" if speedup is None else "x")


def number(value: float | None, scale: float = 1.0) -> str:
    """About three significant digits, at most three decimals; "-" for what was not measured."""
    if value is None:
        return "-"
    scaled = value * scale
    decimals = sum(scaled < bound for bound in (100, 10, 1))
    return f"{scaled:.{decimals}f}"
