"""The picture of a benchmark: time against density, both logarithmic, one panel per size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparsewire.bench.result import CaseResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_plot(results: list[CaseResult], title: str, file: Path) -> None:
    """Draw every backend and its wire limit, and write the picture as the file's name says."""
    # Importing matplotlib takes longer than most commands run.
    from matplotlib.figure import Figure

    sizes = sorted({result.elements for result in results})
    figure = Figure(figsize=(1.5 + 5 * len(sizes), 4.5), layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axes, elements in zip(panels, sizes, strict=True):
        _draw(axes, [result for result in results if result.elements == elements])
        axes.set_title(f"{elements:,} elements")
    figure.suptitle(title)
    figure.savefig(file, dpi=150)


def _draw(axes: Axes, results: list[CaseResult]) -> None:
    for pattern in dict.fromkeys(result.pattern for result in results):
        of_pattern = sorted(
            (r for r in results if r.pattern == pattern), key=lambda result: result.density
        )
        for backend in dict.fromkeys(name for result in of_pattern for name in result.backends):
            _draw_backend(axes, of_pattern, backend)
    axes.set(xscale="log", yscale="log", xlabel="density", ylabel="time [ms]")
    axes.plot([], [], "k:", label="wire limit")
    axes.grid(which="both", alpha=0.2)
    axes.legend(fontsize="small")


def _draw_backend(axes: Axes, results: list[CaseResult], backend: str) -> None:
    densities = [result.density for result in results]
    measured = [result.backends[backend] for result in results]
    style = "s--" if backend.startswith("gloo") else "o-"
    label = f"{backend}, {results[0].pattern}"
    (line,) = axes.plot(densities, [m.median_s * 1e3 for m in measured], style, label=label)
    limits = [m.limit_s * 1e3 for m in measured if m.limit_s is not None]
    if limits:
        axes.plot(densities, limits, ":", color=line.get_color())
