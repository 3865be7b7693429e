"""The picture of `sparsewire bench outer`: losses against bytes, and against time at each link."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from sparsewire.tools.experiment.report import new_figure
from sparsewire.tools.training.outer.comparison import Comparison, Studied
from sparsewire.tools.training.outer.findings import mean_losses, steps_of
from sparsewire.tools.training.outer.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curves(comparison: Comparison) -> Figure:
    """Mean losses of each method against bytes, and against time at each link."""
    links = list(comparison.plan.links)
    panels = 1 + len(links)
    rows = -(-panels // 2)
    figure = new_figure(11, 4 * rows)
    axes = figure.subplots(rows, 2, squeeze=False, sharey=True).flatten()
    for studied in comparison.studied:
        _draw(comparison, studied, axes)
    _label(axes[0], "bytes sent by a replica [MB]", "Held-out loss against bytes on the wire")
    for panel, link in zip(axes[1:], links, strict=False):
        _label(panel, "time [s]", f"Held-out loss against time at {link}")
    for panel in axes[panels:]:
        panel.set_axis_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw(comparison: Comparison, studied: Studied, axes: Any) -> None:
    steps = steps_of(comparison.plan, comparison.plan.steps)
    losses = mean_losses(studied.trained)
    up = [fmean(each) for each in zip(*(run.up for run in studied.trained), strict=True)]
    style = {"label": METHODS[studied.name].in_words, "linewidth": 1.2}
    # Before the first step nothing is sent, and a logarithm has no place for it.
    axes[0].plot([sent / 1e6 for sent in up[1:]], losses[1:], **style)
    for panel, link in zip(axes[1:], comparison.plan.links, strict=False):
        panel.plot([step * studied.step_s[link] for step in steps[1:]], losses[1:], **style)


def _label(axes: Axes, label: str, title: str) -> None:
    axes.set(xlabel=label, ylabel="held-out loss", title=title, xscale="log")
    axes.title.set_fontsize("medium")
    axes.grid(which="both", alpha=0.2)
