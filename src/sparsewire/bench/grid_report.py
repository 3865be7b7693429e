"""What people see of a grid: a table of its cells, a heat map, and the record as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.bench.cluster import Cluster
from sparsewire.bench.grid import CANDIDATES, CLOSE, Cell, share_close
from sparsewire.bench.job import Job
from sparsewire.bench.table import number
from sparsewire.measure.conditions import conditions
from sparsewire.measure.sizes import size_text

_SHORT = {
    "allgather": "allgather",
    "ssar_recursive_double": "doubling",
    "ssar_split_allgather": "split",
    "stream": "stream",
}


def verdict(cells: list[Cell]) -> str:
    """One line on how well "auto" chose."""
    close = sum(cell.is_close for cell in cells)
    return (
        f"auto is within {CLOSE - 1:.0%} of the best in {close} of {len(cells)} cells "
        f"({share_close(cells):.0%})"
    )


def grid_table(cells: list[Cell]) -> Table:
    """A row per cell: all times in ms, what was chosen, and the time of auto over the best."""
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("size", "density", *_SHORT.values(), "auto", "model"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("chosen", no_wrap=True)
    table.add_column("over best", justify="right", no_wrap=True)
    for cell in cells:
        table.add_row(
            size_text(cell.bytes),
            f"{cell.density:g}",
            *(number(cell.seconds[name], 1e3) for name in CANDIDATES),
            number(cell.auto_s, 1e3),
            number(cell.predicted_s, 1e3),
            _SHORT[cell.chosen],
            f"{cell.ratio:.2f}",
            style=None if cell.is_close else "yellow",
        )
    return table


def write_grid(file: Path, job: Job, cluster: Cluster, cells: list[Cell]) -> None:
    """Write everything that is known about a run as JSON; times in seconds, sizes in bytes."""
    record = {
        "benchmark": "grid",
        "cluster": asdict(cluster),
        "job": asdict(job),
        "conditions": conditions(),
        "share_close": share_close(cells),
        "cells": [{**asdict(cell), "best": cell.best, "ratio": cell.ratio} for cell in cells],
    }
    file.write_text(json.dumps(record, indent=1) + "\n")


def write_heat_map(cells: list[Cell], title: str, file: Path) -> None:
    """Draw the time of auto over the best, by size and density, with the names of both."""
    # Importing matplotlib takes longer than most commands run.
    from matplotlib.figure import Figure

    sizes = sorted({cell.bytes for cell in cells})
    densities = sorted({cell.density for cell in cells})
    figure = Figure(figsize=(2 + 1.35 * len(densities), 1.6 + 0.75 * len(sizes)))
    figure.set_layout_engine("constrained")
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
    figure.savefig(file, dpi=150)


# Colours end here.
_WORST = 1.5


def _label(cell: Cell) -> str:
    chosen, best = _SHORT[cell.chosen], _SHORT[cell.best]
    names = chosen if chosen == best else f"{chosen}\n(best: {best})"
    return f"{cell.ratio:.2f}\n{names}"
