"""The picture of the demo: loss over time for every backend, and where a step's time goes."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparsewire.demo.report import Report


def save_plot(report: Report, path: Path) -> None:
    """Draw the report into a PNG."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    losses, times = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_losses(losses, report)
    _draw_step_times(times, report)
    setting = report.setting
    where = "on loopback" if setting.link is None else f"at {setting.link}"
    figure.suptitle(f"An LSTM language model, {setting.workers} workers {where}")
    figure.savefig(path, dpi=150)


def _draw_losses(axes: Axes, report: Report) -> None:
    for run in report.runs:
        axes.plot(run.wall_s, run.losses, marker=".", label=run.backend)
    axes.set(xlabel="time [s]", ylabel="training loss", title="Loss over time")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()


def _draw_step_times(axes: Axes, report: Report) -> None:
    names = [run.backend for run in report.runs]
    alone = [min(run.alone_s, run.step_s) * 1e3 for run in report.runs]
    communication = [run.communication_s * 1e3 for run in report.runs]
    axes.bar(names, alone, width=0.5, label="computation")
    bars = axes.bar(names, communication, width=0.5, bottom=alone, label="communication")
    axes.bar_label(bars, [f"{run.step_s * 1e3:.0f} ms" for run in report.runs])
    axes.set(ylabel="time per step [ms]", title="Where a step's time goes")
    axes.margins(y=0.12)
    axes.legend()
