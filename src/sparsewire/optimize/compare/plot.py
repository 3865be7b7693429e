"""The picture of a comparison: distance to the solution by epochs, bits and modelled time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparsewire.experiment.report import new_figure
from sparsewire.optimize.compare.descent import Descent
from sparsewire.optimize.compare.setting import Setting
from sparsewire.optimize.compare.trace import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Panel(NamedTuple):
    """One panel: its x axis."""

    label: str
    scale: str
    measure: Callable[[Point], float]


# By epochs, linear convergence is a straight line. Messages differ by powers of ten.
_PANELS = (
    _Panel("epochs", "linear", lambda point: point.epochs),
    _Panel("bits sent per worker", "log", lambda point: point.bits),
    _Panel("modelled time [s]", "log", lambda point: point.seconds),
)


def by_costs(setting: Setting, runs: Sequence[Descent]) -> Figure:
    """A line for each method in each panel."""
    figure = new_figure(13, 4.6)
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, panel in zip(panels, _PANELS, strict=True):
        _draw(axes, setting, runs, panel)
    panels[0].set_ylabel("|x - x*|² / |x⁰ - x*|²")
    panels[-1].set_title(str(setting.link), fontsize="small")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(runs)))
    figure.suptitle(setting.title)
    return figure


def _draw(axes: Axes, setting: Setting, runs: Sequence[Descent], panel: _Panel) -> None:
    for run in runs:
        # The start has cost nothing, which a log scale cannot show.
        points = [point for point in run.points if point.rounds > 0]
        x = [panel.measure(point) for point in points]
        axes.plot(x, [point.distance / setting.first_distance for point in points], label=run.label)
    axes.set_xlabel(panel.label)
    axes.set_xscale(panel.scale)
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
