"""The picture: loss by step, by bytes sent, and by time on the links; a row for each task."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from sparsewire.training.report import Report, Run
from sparsewire.training.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 40
"""Training losses are averaged over so many parts of a training, because batches differ."""
_TITLES = ("by step", "by bytes sent", "by time")


def save_plot(report: Report, file: Path) -> None:
    """Draw the trainings of the first seed, in the format that the file's name says."""
    # Importing matplotlib takes longer than most commands run.
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(run.task for run in report.trained))
    figure = Figure(figsize=(12, 3.7 * len(tasks)), layout="constrained")
    rows = figure.subplots(len(tasks), len(_TITLES), squeeze=False, sharey="row")
    for row, task in zip(rows, tasks, strict=True):
        seconds = {f.method: f.step_s for f in report.findings() if f.task == task}
        for run in report.trained:
            if run.task == task and run.seed == 0:
                _draw(row, run, seconds[run.method])
        _label(row, task, report)
    figure.savefig(file, dpi=150)


def _draw(row: list[Axes], run: Run, step_s: float) -> None:
    """Draw one training into all panels of its task."""
    part = max(1, len(run.losses) // POINTS)
    ends = range(part, len(run.losses) + 1, part)
    losses = [sum(run.losses[end - part : end]) / part for end in ends]
    sent = list(accumulate(run.sent))
    row[0].plot(list(ends), losses, label=run.method)
    row[1].plot([sent[end - 1] / 1e6 for end in ends], losses)
    row[2].plot([end * step_s for end in ends], losses)


def _label(row: list[Axes], task: str, report: Report) -> None:
    where = "on loopback" if report.link is None else f"at {report.link}"
    labels = ("step", "MB sent by a rank", f"time [s], at the median time of a step {where}")
    for axes, label, title, scale in zip(row, labels, _TITLES, _SCALES, strict=True):
        axes.set(xlabel=label, title=f"{TASKS[task].title}, {title}", xscale=scale, yscale="log")
        axes.title.set_fontsize("medium")
        axes.grid(which="both", alpha=0.2)
    # Losses stay within one power of ten or two: plain numbers are easier to read there.
    row[0].yaxis.set_major_formatter("{x:g}")
    row[0].yaxis.set_minor_formatter("{x:g}")
    row[0].set_ylabel("training loss")
    row[0].legend(fontsize="small")


_SCALES = ("linear", "log", "log")
