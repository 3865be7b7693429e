"""The picture: loss by step, by bytes sent, and by time on the links; a row for each task."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from sparsewire.experiment.report import new_figure
from sparsewire.training.averaging import Averaging
from sparsewire.training.comparison import Comparison
from sparsewire.training.run import Trained
from sparsewire.training.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 40
"""Training losses are averaged over so many parts of a training, because batches differ."""
_PANELS = (("by step", "linear"), ("by bytes sent", "log"), ("by time", "log"))


def losses(comparison: Comparison, step_s: Mapping[tuple[str, str], float]) -> Figure:
    """The trainings of the first seed; `step_s` is the time of a step by task and method."""
    tasks = list(dict.fromkeys(run.task for run in comparison.trained))
    figure = new_figure(12, 3.7 * len(tasks))
    rows = figure.subplots(len(tasks), len(_PANELS), squeeze=False, sharey="row")
    for row, task in zip(rows, tasks, strict=True):
        runs = [run for run in comparison.trained if run.task == task and run.seed == 0]
        for run, label in zip(runs, _labels(runs), strict=True):
            _draw(row, run, step_s[task, run.method], label)
        _label(row, task, comparison.link)
    return figure


def _labels(runs: list[Trained]) -> list[str]:
    """In words, with the options where the words alone would be equal."""
    words = [Averaging.parse(run.method).in_words for run in runs]
    return [
        label if words.count(label) == 1 else f"{label} ({run.method})"
        for run, label in zip(runs, words, strict=True)
    ]


def _draw(row: list[Axes], run: Trained, step_s: float, label: str) -> None:
    """Draw one training into all panels of its task."""
    part = max(1, len(run.losses) // POINTS)
    ends = range(part, len(run.losses) + 1, part)
    means = [sum(run.losses[end - part : end]) / part for end in ends]
    sent = list(accumulate(run.sent))
    row[0].plot(list(ends), means, label=label)
    row[1].plot([sent[end - 1] / 1e6 for end in ends], means)
    row[2].plot([end * step_s for end in ends], means)


def _label(row: list[Axes], task: str, link: str | None) -> None:
    where = "on loopback" if link is None else f"at {link}"
    labels = ("step", "MB sent by a rank", f"time [s], at the median time of a step {where}")
    for axes, label, (title, scale) in zip(row, labels, _PANELS, strict=True):
        axes.set(xlabel=label, title=f"{TASKS[task].title}, {title}", xscale=scale, yscale="log")
        axes.title.set_fontsize("medium")
        axes.grid(which="both", alpha=0.2)
    # Losses stay within one power of ten or two: plain numbers are easier to read there.
    row[0].yaxis.set_major_formatter("{x:g}")
    row[0].yaxis.set_minor_formatter("{x:g}")
    row[0].set_ylabel("training loss")
    row[0].legend(fontsize="small")
