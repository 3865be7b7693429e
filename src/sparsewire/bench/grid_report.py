"""What people see of a grid: a table of its cells, a heat map, and all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from sparsewire.bench.all_reduce import run_all_reduce
from sparsewire.bench.grid import CANDIDATES, CLOSE, Cell
from sparsewire.bench.job import Job
from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.progress import bars
from sparsewire.experiment.report import Column, Report, new_figure, number, table
from sparsewire.measure.sizes import size_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHORT = {
    "allgather": "allgather",
    "ssar_recursive_double": "doubling",
    "ssar_split_allgather": "split",
    "stream": "stream",
}
# Colours end here.
_WORST = 1.5


def grid_report(job: Job, cluster: Cluster) -> Report:
    """Measure all cells of a job, as `run_all_reduce` does."""
    with bars() as move:
        cells = [Cell.of(result) for result in run_all_reduce(job, cluster, move)]
    record = {
        "benchmark": "grid",
        "cluster": asdict(cluster),
        "job": asdict(job),
        "share_close": sum(cell.is_close for cell in cells) / len(cells),
        "cells": [{**asdict(cell), "best": cell.best, "ratio": cell.ratio} for cell in cells],
    }
    title = f"{job}, {cluster}"
    shown = (f"{title}, times in ms", grid_table(cells), verdict(cells))
    return Report(shown, record, lambda: heat_map(cells, title))


def verdict(cells: Sequence[Cell]) -> str:
    """One line on how well "auto" chose."""
    close = sum(cell.is_close for cell in cells)
    return (
        f"auto is within {CLOSE - 1:.0%} of the best in {close} of {len(cells)} cells "
        f"({close / len(cells):.0%})"
    )


def _seconds_of(algorithm: str) -> Column[Cell]:
    return Column(_SHORT[algorithm], lambda cell: number(cell.seconds[algorithm], 1e3))


_COLUMNS = (
    Column[Cell]("size", lambda cell: size_text(cell.bytes)),
    Column[Cell]("density", lambda cell: f"{cell.density:g}"),
    *map(_seconds_of, CANDIDATES),
    Column[Cell]("auto", lambda cell: number(cell.auto_s, 1e3)),
    Column[Cell]("model", lambda cell: number(cell.predicted_s, 1e3)),
    Column[Cell]("chosen", lambda cell: _SHORT[cell.chosen], is_text=True),
    Column[Cell]("over best", lambda cell: f"{cell.ratio:.2f}"),
)


def grid_table(cells: Sequence[Cell]) -> Table:
    """A row per cell: all times in ms, what was chosen, and the time of auto over the best."""
    return table(_COLUMNS, cells, stands_out=lambda cell: not cell.is_close)


def heat_map(cells: Sequence[Cell], title: str) -> Figure:
    """The time of auto over the best, by size and density, with the names of both."""
    sizes = sorted({cell.bytes for cell in cells})
    densities = sorted({cell.density for cell in cells})
    figure = new_figure(2 + 1.35 * len(densities), 1.6 + 0.75 * len(sizes))
    axes = figure.subplots()
    ratios = [[0.0] * len(densities) for _ in sizes]
    for cell in cells:
        row, column = sizes.index(cell.bytes), densities.index(cell.density)
        ratios[row][column] = cell.ratio
        axes.text(column, row, _label(cell), ha="center", va="center", fontsize="x-small")
    image = axes.imshow(
        ratios,
        cmap="RdYlGn_r",
        alpha=0.7,
        vmin=2 - _WORST,
        vmax=_WORST,
        origin="lower",
        aspect="auto",
    )
    axes.set_xticks(range(len(densities)), [f"{density:.4g}" for density in densities])
    axes.set_yticks(range(len(sizes)), [size_text(size) for size in sizes])
    axes.set(xlabel="density of each rank", ylabel="size")
    axes.set_title(f"{title}\n{verdict(cells)}", fontsize="medium")
    figure.colorbar(image, label="time of auto over the best", extend="both")
    return figure


def _label(cell: Cell) -> str:
    chosen, best = _SHORT[cell.chosen], _SHORT[cell.best]
    names = chosen if chosen == best else f"{chosen}\n(best: {best})"
    return f"{cell.ratio:.2f}\n{names}"
