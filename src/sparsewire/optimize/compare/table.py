"""A comparison as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.optimize.compare.link import Link
from sparsewire.optimize.compare.report import Report, Setting
from sparsewire.optimize.compare.run import Run


def describe(setting: Setting) -> str:
    """Say in four lines what was minimised, on which link, and for how long."""
    terms = f"l2 {setting.l2:.3g}" + (f", l1 {setting.l1:.3g}" if setting.l1 else "")
    return (
        f"{title(setting)}\n"
        f"{setting.rows:,} rows, {setting.dimension:,} features, {terms}, "
        f"condition number {setting.condition:,.0f}\n"
        f"modelled time: that of messages, {describe_link(setting.link)}\n"
        f"each ends where {setting.limits}"
    )


def title(setting: Setting) -> str:
    """One line for tables and pictures."""
    workers = f"{setting.workers} {'simulated ' * setting.simulated}workers"
    return f"{setting.data}: {setting.model}, {workers}, rows {_SPLITS[setting.split]}"


_SPLITS = {"shuffled": "shuffled", "label": "sorted by label", "index": "in their order"}


def describe_link(link: Link) -> str:
    """Speeds and latency in words."""
    up, down = speed(link.up_bits_s), speed(link.down_bits_s)
    both = f"{up} per worker" if up == down else f"{up} per worker to the server, {down} back"
    return f"{both}, {seconds(link.latency_s)} latency"


def findings(report: Report) -> Table:
    """One row for each method, with what it took until it ended."""
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)
    table.add_column("method", overflow="fold")
    wire = [] if report.setting.simulated else ["on the\nwire"]
    for name in ("step", "rounds", "epochs", "sent per\nworker", *wire, "modelled\ntime"):
        table.add_column(name, justify="right")
    table.add_column("|x - x*|²,\nrelative", justify="right")
    table.add_column("f - f*", justify="right")
    table.add_column("")
    for run in report.runs:
        table.add_row(*_cells(run, report.setting.first_distance))
    return table


def _cells(run: Run, first_distance: float) -> Sequence[str]:
    last = run.last
    return (
        run.label,
        f"{run.step_size:.3g}",
        f"{last.rounds:,}",
        f"{last.epochs:,.4g}",
        size(last.bits),
        *([] if run.wire_bytes is None else [size(8 * run.wire_bytes)]),
        seconds(last.seconds),
        f"{last.distance / first_distance:.1e}",
        f"{last.suboptimality:.1e}",
        run.ending,
    )


def speed(bits_s: float) -> str:
    """Such as "100 Mbit/s"."""
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bits_s >= unit:
            return f"{bits_s / unit:g} {name}"
    return f"{bits_s / 1e3:g} kbit/s"


def size(bits: float) -> str:
    """A number of bits in bytes, such as "1.23 MB"."""
    for unit, name in ((8e9, "GB"), (8e6, "MB"), (8e3, "kB")):
        if bits >= unit:
            return f"{bits / unit:.3g} {name}"
    return f"{bits / 8:.0f} B"


def seconds(duration: float) -> str:
    """Such as "1.23 ms"."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if duration >= unit:
            return f"{duration / unit:,.3g} {name}" if duration < 1e3 else f"{duration:,.0f} s"
    return f"{duration * 1e6:.3g} us"
