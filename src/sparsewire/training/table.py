"""The findings as a table on the terminal: one row for each task and method."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.training.report import Finding, Report
from sparsewire.training.tasks import TASKS

_COLUMNS = (
    "method",
    "training\nloss",
    "over\nfirst",
    "held-out\nloss",
    "over\nfirst",
    "sent per step\nand rank",
    "fewer\nbytes",
    "time of\na step",
    "times\nas fast",
)


def tables(report: Report) -> list[Table]:
    """One for each task."""
    return [_table(report, task) for task in dict.fromkeys(run.task for run in report.trained)]


def describe(report: Report) -> str:
    """Say where the numbers come from."""
    where = "loopback" if report.link is None else f"emulated hosts with links of {report.link}"
    lines = [
        f"{report.ranks} ranks; losses of whole trainings, median times of steps on {where}.",
        "Training losses are means over the last 5% of the steps. Bytes are means over a whole "
        "training: of gloo those that its ring has to send, of sparsewire its own count.",
    ]
    if warmups := sorted({run.warmup for run in report.trained if run.warmup}):
        steps = " or ".join(map(str, warmups))
        lines.append(f"Hooks send everything in their first {steps} steps, which is counted.")
    return "\n".join(lines + ([f"Text: {report.corpus}."] if report.corpus else []))


def _table(report: Report, task: str) -> Table:
    runs = [run for run in report.trained if run.task == task]
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False, title_justify="left")
    table.title = (
        f"{TASKS[task].title}, {runs[0].parameters:,} parameters, {len(runs[0].losses)} steps"
    )
    for number, name in enumerate(_COLUMNS):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for finding in report.findings():
        if finding.task == task:
            table.add_row(*_row(finding))
    return table


def _row(finding: Finding) -> list[str]:
    return [
        finding.method,
        f"{finding.final_loss:.4f}",
        f"{finding.loss_ratio:.4f}",
        f"{finding.held_out_loss:.4f}",
        f"{finding.held_out_ratio:.4f}",
        f"{finding.sent / 1e6:.3f} MB",
        f"{finding.fewer_bytes:.1f}",
        f"{finding.step_s * 1e3:.0f} ms",
        f"{finding.speed_up:.1f}",
    ]
