"""The report of a comparison: setting and outcome, as text, table, record and picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from sparsewire.tools.experiment.report import Column, Report, new_figure, table
from sparsewire.tools.measure.sizes import seconds_text, traffic_text
from sparsewire.tools.optimize.compare.descent import Descent
from sparsewire.tools.optimize.compare.task import SPLITS, Comparison, Limits, LinkModel
from sparsewire.tools.optimize.compare.yardstick import Point, Yardstick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Setting:
    """The problem in numbers, after all defaults are known."""

    data: str
    model: str
    workers: int
    simulated: bool
    """Whether one process played all workers."""
    rows: int
    """Rows of all workers; rows that could not be dealt out evenly are left out."""
    dimension: int
    split: str
    l2: float
    l1: float
    smoothness: float
    """L, of f."""
    worker_smoothness: float
    """The largest L_i."""
    row_smoothness: float
    """L_max, the largest of a single row."""
    condition: float
    """L / mu, infinite where mu is 0."""
    limits: Limits
    """The limits of each method."""
    link: LinkModel
    lowest: float
    """F(x*)."""
    first_distance: float
    """|x - x*|^2 at the start."""

    @classmethod
    def of(cls, yardstick: Yardstick, limits: Limits, simulated: bool) -> Setting:
        task, problem = yardstick.task, yardstick.problem
        return cls(
            data=Path(task.data).name,
            model=task.model,
            workers=problem.workers,
            simulated=simulated,
            rows=sum(problem.m),
            dimension=problem.dimension,
            split=task.split,
            l2=problem.l2,
            l1=problem.l1,
            smoothness=problem.L,
            worker_smoothness=max(problem.L_i),
            row_smoothness=problem.L_max,
            condition=problem.L / problem.mu if problem.mu else math.inf,
            limits=limits,
            link=yardstick.link,
            lowest=yardstick.lowest,
            first_distance=yardstick.first_distance,
        )

    def __str__(self) -> str:
        terms = f"l2 {self.l2:.3g}" + (f", l1 {self.l1:.3g}" if self.l1 else "")
        return (
            f"{self.title}\n"
            f"{self.rows:,} rows, {self.dimension:,} features, {terms}, "
            f"condition number {self.condition:,.0f}\n"
            f"modelled time: that of messages, {self.link}\n"
            f"each ends where {self.limits}"
        )

    @property
    def title(self) -> str:
        """One line for tables and pictures."""
        workers = f"{self.workers} {'simulated ' * self.simulated}workers"
        return f"{self.data}: {self.model}, {workers}, rows {SPLITS[self.split]}"


@dataclass(frozen=True)
class Compared:
    """A whole comparison, on rank 0."""

    task: Comparison
    setting: Setting
    warnings: list[str]
    runs: list[Descent]

    def record(self) -> dict[str, Any]:
        """Everything; times in seconds, speeds in bits per second."""
        return {
            "request": asdict(self.task),
            "setting": asdict(self.setting),
            "warnings": self.warnings,
            "runs": [asdict(run) for run in self.runs],
        }

    def shown(self) -> Sequence[RenderableType]:
        """A table with a row for each method, and its costs until it ended."""
        return str(self.setting), table(_columns(self.setting), self.runs)

    def report(self) -> Report:
        """The report as text, table, record and picture."""
        return Report(self.shown(), self.record(), lambda: by_costs(self.setting, self.runs))


def _columns(setting: Setting) -> Sequence[Column[Descent]]:
    first = setting.first_distance
    wire = Column[Descent]("on the\nwire", lambda run: traffic_text(8 * (run.wire_bytes or 0)))
    return (
        Column("method", lambda run: run.label, is_text=True),
        Column("step", lambda run: f"{run.step_size:.3g}"),
        Column("rounds", lambda run: f"{run.last.rounds:,}"),
        Column("epochs", lambda run: f"{run.last.epochs:,.4g}"),
        Column("sent per\nworker", lambda run: traffic_text(run.last.bits)),
        *([] if setting.simulated else [wire]),
        Column("modelled\ntime", lambda run: seconds_text(run.last.seconds)),
        Column("|x - x*|²,\nrelative", lambda run: f"{run.last.distance / first:.1e}"),
        Column("f - f*", lambda run: f"{run.last.suboptimality:.1e}"),
        Column("", lambda run: run.ending, is_text=True),
    )


# The x axis of each panel: its label, its scale, and what is shown along it. By epochs, linear
# convergence is a straight line. Messages differ by powers of ten.
_PANELS: tuple[tuple[str, str, Callable[[Point], float]], ...] = (
    ("epochs", "linear", lambda point: point.epochs),
    ("bits sent per worker", "log", lambda point: point.bits),
    ("modelled time [s]", "log", lambda point: point.seconds),
)


def by_costs(setting: Setting, runs: Sequence[Descent]) -> Figure:
    """A line for each method in each panel."""
    figure = new_figure(13, 4.6)
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, (label, scale, measure) in zip(panels, _PANELS, strict=True):
        axes.set_xlabel(label)
        axes.set_xscale(scale)
        _draw(axes, setting, runs, measure)
    panels[0].set_ylabel("|x - x*|² / |x⁰ - x*|²")
    panels[-1].set_title(str(setting.link), fontsize="small")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(runs)))
    figure.suptitle(setting.title)
    return figure


def _draw(
    axes: Axes, setting: Setting, runs: Sequence[Descent], measure: Callable[[Point], float]
) -> None:
    for run in runs:
        # The start has cost nothing, which a log scale cannot show.
        points = [point for point in run.points if point.rounds > 0]
        x = [measure(point) for point in points]
        axes.plot(x, [point.distance / setting.first_distance for point in points], label=run.label)
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
