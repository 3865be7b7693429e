"""The picture of an optimisation: objective and accuracy, against epochs and communication time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparsewire.optimize.train.report import Epoch, Report
from sparsewire.optimize.train.table import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def save_plot(report: Report, file: Path) -> None:
    """Draw the report, in the format that the file's name says."""
    # Importing matplotlib takes longer than many runs.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    (left, right), (bottom_left, bottom_right) = figure.subplots(2, 2, sharex="col", sharey="row")
    epochs = [float(epoch.epoch) for epoch in report.epochs]
    times = [epoch.communication_s for epoch in report.epochs]
    for axes, x in ((left, epochs), (right, times)):
        _draw_objective(axes, x, report.epochs)
    for axes, x in ((bottom_left, epochs), (bottom_right, times)):
        _draw_accuracy(axes, x, report.epochs)
    left.set_ylabel("objective")
    bottom_left.set(ylabel="accuracy [%]", xlabel="epochs")
    bottom_right.set_xlabel(f"communication time [s]{_sent(report)}")
    bottom_right.legend(loc="best")
    figure.suptitle(title(report))
    figure.savefig(file, dpi=150)


def _sent(report: Report) -> str:
    sent = report.last.bytes_sent / 1e6
    return f", {sent:.3g} MB sent per rank" if sent else ""


def _draw_objective(axes: Axes, x: list[float], epochs: list[Epoch]) -> None:
    _draw(axes, x, {"objective": [epoch.objective for epoch in epochs]})


def _draw_accuracy(axes: Axes, x: list[float], epochs: list[Epoch]) -> None:
    lines = {"training": [100 * epoch.train_accuracy for epoch in epochs]}
    test = [100 * e.test_accuracy for e in epochs if e.test_accuracy is not None]
    if test:
        lines["held out"] = test
    _draw(axes, x, lines)


def _draw(axes: Axes, x: list[float], lines: dict[str, list[float]]) -> None:
    for label, y in lines.items():
        axes.plot(x, y, marker=".", label=label)
    # The start only guesses. Shown in full, it would leave no room for the differences that count.
    shown = [value for y in lines.values() for value in y[1:]]
    margin = 0.08 * (max(shown) - min(shown)) or 0.01 * max(shown)
    axes.set_ylim(min(shown) - margin, max(shown) + margin)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
