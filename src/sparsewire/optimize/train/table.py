"""The findings of an optimisation as a table on the terminal."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.optimize.train.report import Epoch, Report

_ROWS_SHOWN = 10


def describe(report: Report) -> str:
    """Say in three lines what was optimised and how."""
    setting = report.setting
    step = "" if setting.step_size is None else f", first step {setting.step_size:.3g}"
    return (
        f"{title(report)}\n"
        f"{setting.rows:,} rows and {setting.test_rows:,} held out, {setting.features:,} features, "
        f"{setting.row_nonzeros:.1f} of them in a row\n"
        f"l2 {setting.l2:.3g}{step}, {setting.steps:,} steps an epoch"
    )


def title(report: Report) -> str:
    """One line for tables and pictures."""
    setting = report.setting
    ranks = f"{setting.ranks} rank" + "s" * (setting.ranks > 1)
    return f"{setting.data}: {setting.model}, {METHOD_NAMES[setting.method]}, {ranks}"


METHOD_NAMES = {
    "sgd": "SGD over sparse all_reduce",
    "bcd": "block coordinate descent over sparse all_gather",
}


def findings(report: Report) -> Table:
    """About ten epochs, the first and the last among them; times and bytes from the start."""
    table = Table(box=SIMPLE)
    for name in ("epoch", "objective", "train\naccuracy", "test\naccuracy"):
        table.add_column(name, justify="right")
    for name in ("time\ns", "communication\ns", "sent per rank\nMB", "if dense\nMB"):
        table.add_column(name, justify="right")
    for epoch in _shown(report.epochs):
        table.add_row(*_cells(epoch, report.setting.dense_bytes))
    return table


def _shown(epochs: list[Epoch]) -> list[Epoch]:
    every = -(-(len(epochs) - 1) // _ROWS_SHOWN)
    return [e for e in epochs[:-1] if e.epoch % every == 0] + [epochs[-1]]


def _cells(epoch: Epoch, dense_bytes: float) -> list[str]:
    test = epoch.test_accuracy
    return [
        str(epoch.epoch),
        f"{epoch.objective:.6f}",
        f"{epoch.train_accuracy:.2%}",
        "-" if test is None else f"{test:.2%}",
        f"{epoch.seconds:.2f}",
        f"{epoch.communication_s:.2f}",
        f"{epoch.bytes_sent / 1e6:.2f}",
        f"{epoch.epoch * dense_bytes / 1e6:.1f}",
    ]
