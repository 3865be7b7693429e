"""The demo's findings as a table on the terminal: one column per backend."""

from collections.abc import Callable

from rich.table import Table

from sparsewire.demo.report import SAME_LOSS, Report, Run

_SOURCES = {"interface": "", "sparsewire": " (own count)", "computed": " (computed)"}


def findings(report: Report) -> Table:
    """Return the table of all runs."""
    table = Table(title=_title(report))
    table.add_column("")
    for run in report.runs:
        table.add_column(run.backend, justify="right")
    for label, cell in _ROWS.items():
        table.add_row(label, *(cell(run) for run in report.runs))
    return table


def verdict(report: Report) -> str:
    """Say in one sentence how the last of several backends compares with the first."""
    first, last = report.runs[0].backend, report.runs[-1].backend
    same = "equal" if report.loss_difference <= SAME_LOSS else "NOT equal"
    return (
        f"{last} trains {report.speed_up:.1f} times as fast as {first}; their losses are {same} "
        f"(largest relative difference {report.loss_difference:.0e})."
    )


def densities(report: Report) -> str:
    """Say how much of a gradient is not zero."""
    run = report.runs[-1]
    return (
        "Not zero in a gradient: "
        f"{run.density_rank['element']:.1%} of the elements, {run.density_rank['block']:.1%} of "
        f"the 256-element blocks; after summing over all workers "
        f"{run.density_sum['element']:.1%} and {run.density_sum['block']:.1%}."
    )


def _title(report: Report) -> str:
    setting = report.setting
    where = "loopback" if setting.link is None else f"links of {setting.link}"
    millions = report.runs[0].parameters / 1e6
    return f"{setting.workers} workers, {where}, {millions:.1f} million parameters"


def _bytes(run: Run) -> str:
    return f"{run.bytes_per_step / 1e6:.1f} MB{_SOURCES[run.bytes_source]}"


_ROWS: dict[str, Callable[[Run], str]] = {
    "steps per second": lambda run: f"{1 / run.step_s:.2f}",
    "time per step": lambda run: f"{run.step_s * 1e3:.0f} ms",
    "  of it without communication": lambda run: f"{run.alone_s * 1e3:.0f} ms",
    "sent per step and worker": _bytes,
    "training loss, first step": lambda run: f"{run.losses[0]:.5f}",
    "training loss, last step": lambda run: f"{run.losses[-1]:.5f}",
    "held-out loss, before": lambda run: f"{run.held_out_before:.5f}",
    "held-out loss, after": lambda run: f"{run.held_out_after:.5f}",
}
