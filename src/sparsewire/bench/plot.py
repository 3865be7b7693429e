"""The picture of a benchmark: time against density, both logarithmic, one panel per size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparsewire.bench.names import in_words
from sparsewire.bench.patterns import Pattern
from sparsewire.bench.result import CaseResult
from sparsewire.experiment.report import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def time_by_density(results: Sequence[CaseResult], title: str) -> Figure:
    """Every backend and its wire limit."""
    sizes = sorted({result.elements for result in results})
    figure = new_figure(1.5 + 5 * len(sizes), 4.5)
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axes, elements in zip(panels, sizes, strict=True):
        _draw(axes, [result for result in results if result.elements == elements])
        axes.set_title(f"{elements:,} elements")
    figure.suptitle(title)
    return figure


def _draw(axes: Axes, results: Sequence[CaseResult]) -> None:
    patterns = list(dict.fromkeys(result.pattern for result in results))
    for number, pattern in enumerate(patterns):
        of_pattern = [result for result in results if result.pattern == pattern]
        for backend in of_pattern[0].backends:
            label, is_dense = in_words(backend), backend == "gloo"
            # Where the zeros of a dense tensor lie makes no difference, so one line will do.
            if not is_dense or number == 0:
                if not is_dense and len(patterns) > 1:
                    label = f"{label}, {Pattern.parse(pattern).in_words}"
                _draw_backend(axes, of_pattern, backend, label)
    axes.set(xscale="log", yscale="log", xlabel="density", ylabel="time [ms]")
    if results[0].gloo_limit_s is not None:
        axes.plot([], [], "k:", label="wire limit")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.grid(which="both", alpha=0.2)
    axes.legend(fontsize="small")


def _draw_backend(axes: Axes, results: Sequence[CaseResult], backend: str, label: str) -> None:
    by_density = sorted(results, key=lambda result: result.density)
    densities = [result.density for result in by_density]
    measured = [result.backends[backend] for result in by_density]
    style = "s--" if backend.startswith("gloo") else "o-"
    (line,) = axes.plot(densities, [m.median_s * 1e3 for m in measured], style, label=label)
    limits = [m.limit_s * 1e3 for m in measured if m.limit_s is not None]
    axes.plot(densities[: len(limits)], limits, ":", color=line.get_color())
