"""How well "auto" chooses: over a grid of sizes and densities, beside every fixed algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sparsewire.tools.bench.all_reduce import run_all_reduce
from sparsewire.tools.bench.job import BenchOptions, Job, backend_name
from sparsewire.tools.bench.result import CaseResult
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import bars
from sparsewire.tools.experiment.report import Column, Report, new_figure, number, table
from sparsewire.tools.measure.sizes import size_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AUTO = "auto"
CANDIDATES = {
    "allgather": "allgather",
    "ssar_recursive_double": "doubling",
    "ssar_split_allgather": "split",
    "stream": "stream",
}
"""The algorithms among which "auto" chooses, and what tables call them."""

CLOSE = 1.15
"""A choice within so many times the best time counts as good."""

_ITERATIONS = 400

# Colours end here.
_WORST = 1.5


@dataclass(frozen=True)
class Grid:
    """A grid to measure: sizes in bytes, densities, and the seconds that a cell may take."""

    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    cell_s: float

    def job(self, ranks: int, seed: int, timeout: float) -> Job:
        """All cells, float32, with positions of their own on every rank."""
        options = BenchOptions(
            bytes=",".join(map(str, self.sizes)),
            density=",".join(map(str, self.densities)),
            pattern="random",
            input="sparse",
            algorithm=",".join((AUTO, *CANDIDATES)),
            iterations=_ITERATIONS,
            seed=seed,
            timeout=timeout,
        )
        return options.job(ranks, case_s=self.cell_s)


FULL = Grid(
    (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 100_000_000),
    (1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0),
    cell_s=1.5,
)
QUICK = Grid((1 << 10, 1 << 17, 1 << 22), (1e-3, 0.01, 0.1, 1.0), cell_s=0.5)


@dataclass(frozen=True)
class Cell:
    """One size and density: median seconds of each fixed algorithm and of "auto"."""

    bytes: int
    density: float
    auto_s: float
    chosen: str
    predicted_s: float | None
    seconds: dict[str, float]
    link: Sequence[float] | None = None
    """The link's figures behind the choice."""

    @classmethod
    def of(cls, result: CaseResult) -> Cell:
        """The cell of a case."""
        auto = result.backends[backend_name(AUTO)]
        assert auto.chosen is not None
        seconds = {name: result.backends[backend_name(name)].median_s for name in CANDIDATES}
        sized = (result.bytes, result.density)
        return cls(*sized, auto.median_s, auto.chosen, auto.predicted_s, seconds, auto.link)

    @property
    def best(self) -> str:
        return min(self.seconds, key=lambda name: self.seconds[name])

    @property
    def ratio(self) -> float:
        """The time of "auto" over the best."""
        return self.auto_s / self.seconds[self.best]

    @property
    def is_close(self) -> bool:
        return self.ratio <= CLOSE


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
    by_cell = table(_COLUMNS, cells, stands_out=lambda cell: not cell.is_close)
    shown = (f"{title}, times in ms", by_cell, verdict(cells))
    return Report(shown, record, lambda: heat_map(cells, title))


def verdict(cells: Sequence[Cell]) -> str:
    """One line on how well "auto" chose."""
    close = sum(cell.is_close for cell in cells)
    return (
        f"auto is within {CLOSE - 1:.0%} of the best in {close} of {len(cells)} cells "
        f"({close / len(cells):.0%})"
    )


def _seconds_of(algorithm: str) -> Column[Cell]:
    return Column(CANDIDATES[algorithm], lambda cell: number(cell.seconds[algorithm], 1e3))


_COLUMNS = (
    Column[Cell]("size", lambda cell: size_text(cell.bytes)),
    Column[Cell]("density", lambda cell: f"{cell.density:g}"),
    *map(_seconds_of, CANDIDATES),
    Column[Cell]("auto", lambda cell: number(cell.auto_s, 1e3)),
    Column[Cell]("model", lambda cell: number(cell.predicted_s, 1e3)),
    Column[Cell]("chosen", lambda cell: CANDIDATES[cell.chosen], is_text=True),
    Column[Cell]("over best", lambda cell: f"{cell.ratio:.2f}"),
)


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
    chosen, best = CANDIDATES[cell.chosen], CANDIDATES[cell.best]
    names = chosen if chosen == best else f"{chosen}\n(best: {best})"
    return f"{cell.ratio:.2f}\n{names}"
