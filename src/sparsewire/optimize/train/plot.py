"""The picture of a training: objective and accuracy, against epochs and communication time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparsewire.experiment.report import new_figure
from sparsewire.optimize.train.epochs import Epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def by_epoch_and_time(title: str, epochs: Sequence[Epoch]) -> Figure:
    """The objective above, the accuracies below."""
    objective = {"objective": [epoch.objective for epoch in epochs]}
    accuracy = {"training": [100 * epoch.train_accuracy for epoch in epochs]}
    test = [100 * e.test_accuracy for e in epochs if e.test_accuracy is not None]
    if test:
        accuracy["held out"] = test
    figure = new_figure(10, 6)
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, x in enumerate(
        ([float(e.epoch) for e in epochs], [e.communication_s for e in epochs])
    ):
        _draw(panels[0, column], x, objective)
        _draw(panels[1, column], x, accuracy)
    sent = epochs[-1].bytes_sent / 1e6
    panels[0, 0].set_ylabel("objective")
    panels[1, 0].set(ylabel="accuracy [%]", xlabel="epochs")
    panels[1, 1].set_xlabel(
        "communication time [s]" + (f", {sent:.3g} MB sent per rank" if sent else "")
    )
    panels[1, 1].legend(loc="best")
    figure.suptitle(title)
    return figure


def _draw(axes: Axes, x: list[float], lines: dict[str, list[float]]) -> None:
    for label, y in lines.items():
        axes.plot(x, y, marker=".", label=label)
    # The start only guesses. Shown in full, it would leave no room for the differences that count.
    shown = [value for y in lines.values() for value in y[1:]]
    margin = 0.08 * (max(shown) - min(shown)) or 0.01 * max(shown)
    axes.set_ylim(min(shown) - margin, max(shown) + margin)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
