"""The tables that people read: one per pattern and size, 100 columns wide."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.table import Table

from sparsewire.bench.result import CaseResult, Measurement
from sparsewire.experiment.report import Column, number, table


class _Row(NamedTuple):
    """One backend at one density."""

    density: float
    backend: str
    measured: Measurement


def tables(results: Sequence[CaseResult]) -> Iterator[Table]:
    """One table per pattern and size, densities below each other."""
    for (pattern, elements), group in itertools.groupby(results, _table_of):
        rows = [_Row(r.density, name, m) for r in group for name, m in r.backends.items()]
        is_sparse = any(row.measured.algorithm for row in rows)
        columns = _SPARSE_COLUMNS if is_sparse else _DENSE_COLUMNS
        yield table(columns, rows, f"{pattern}, {elements:,} elements")


def _table_of(result: CaseResult) -> tuple[str, int]:
    return result.pattern, result.elements


def algorithm(backend: str, measured: Measurement) -> str:
    """The algorithm that ran, in brackets where it was chosen; of others the backend."""
    if measured.algorithm is None:
        return backend
    return f"({measured.chosen})" if measured.algorithm == "auto" else measured.algorithm


def _times(speedup: float | None) -> str:
    return number(speedup) + ("" if speedup is None else "x")


_DENSITY = Column[_Row]("density", lambda row: f"{row.density:g}")
_MEDIAN = Column[_Row]("median\nms", lambda row: number(row.measured.median_s, 1e3))
_COSTS = (
    Column[_Row]("sent\nMB", lambda row: number(row.measured.bytes_sent_per_rank, 1e-6)),
    Column[_Row]("limit\nms", lambda row: number(row.measured.limit_s, 1e3)),
    Column[_Row]("times\nlimit", lambda row: number(row.measured.limit_ratio)),
    Column[_Row]("CPU\nms", lambda row: number(row.measured.cpu_s, 1e3)),
    Column[_Row]("against\ngloo", lambda row: _times(row.measured.speedup_over_gloo)),
)
_DENSE_COLUMNS = (
    _DENSITY,
    Column[_Row]("backend", lambda row: row.backend, is_text=True),
    _MEDIAN,
    Column[_Row]("p99\nms", lambda row: number(row.measured.p99_s, 1e3)),
    Column[_Row]("algbw\nMB/s", lambda row: number(row.measured.algbw_bytes_per_s, 1e-6)),
    Column[_Row]("busbw\nMB/s", lambda row: number(row.measured.busbw_bytes_per_s, 1e-6)),
    *_COSTS,
)
_SPARSE_COLUMNS = (
    _DENSITY,
    Column[_Row]("algorithm", lambda row: algorithm(row.backend, row.measured), is_text=True),
    _MEDIAN,
    Column[_Row]("model\nms", lambda row: number(row.measured.predicted_s, 1e3)),
    *_COSTS,
    Column[_Row]("its\nsparse", lambda row: _times(row.measured.speedup_over_gloo_sparse)),
)
