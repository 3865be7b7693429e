"""Makes the records behind the tables of docs/proofs.md, and its plots, for benchmarks/proofs.sh.

python benchmarks/proofs.py FOLDER
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Container, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import records
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparsewire.tools.measure.conditions import conditions

Record = dict[str, Any]

TITLES = (
    "Operators are unbiased",
    "Their variance is within ω, and reaches it",
    "Messages are exact, and as short as their entropy",
    "Invariants",
    "DIANA converges as predicted",
    "Without shifts it stalls",
    "Shifts that move too far diverge",
    "VR-DIANA converges, without variance reduction it stalls",
    "Independent blocks converge where workers agree, and stall elsewhere",
    "ISEGA converges, and is DIANA with random blocks",
    "ISAGA with τ = 1/n takes as many steps as SAGA",
    "Nonconvex bounds hold",
    "Error feedback mends top-1",
    "Proximal methods find the sparse solution",
    "Processes and simulation agree, restored or not",
    "Local steps stand still, and stay stable, where theory says",
)
RECORDS = {"proofs": range(1, 16), "proofs-local": range(16, 17)}
"""The checks of each record."""
DATA = ("constructed", "mushrooms", "a9a", "phishing", "w8a")
CONTROLS = ("DCGD", "QSGD", "SAGA", "GD", "SparseLoCo without feedback")
"""What is plotted dashed."""
PLOTS = {
    "diana": ("DIANA against DCGD, the same operators and steps", [("rounds", (5, 6))]),
    "vr-diana": ("One row a round, rand-k:0.5: VR-DIANA against QSGD", [("rounds", (8,))]),
    "isega": (
        "One block of n: ISEGA; ISAGA against SAGA of one row a step",
        [("rounds of ISEGA", (10,)), ("steps", (11,))],
    ),
    "local": ("Ten local steps a round, all of the same size; GD: one", [("rounds", (16,))]),
}


def main(folder: Path) -> None:
    found = [json.loads(line) for line in (folder / "proofs.jsonl").read_text().splitlines()]
    measured = [record for record in found if "what" in record]
    curves = [record for record in found if "curve" in record]
    for name, checks in RECORDS.items():
        if of_record := [record for record in measured if record["check"] in checks]:
            write(folder / f"{name}.json", of_record)
            draw_all(folder, checks, curves)


def draw_all(folder: Path, checks: Container[int], curves: Sequence[Record]) -> None:
    """Draw the plots that begin with one of these checks."""
    for name, (title, rows) in PLOTS.items():
        if rows[0][1][0] in checks:
            draw(title, rows, curves).savefig(folder / f"proofs-{name}.png", dpi=110)


def write(file: Path, measured: Sequence[Record]) -> None:
    """Write a record of measurements, and say how many failed."""
    failed = sum(not record["holds"] for record in measured)
    figures = {"all": {"measurements": len(measured), "failed": failed}, **rows_of(measured)}
    command = "benchmarks/proofs.sh DATA"
    records.write(file, {"command": command, **made_on(), "figures": figures})
    print(f"{len(measured)} measurements, of which {failed} fail: {file}")


def made_on() -> dict[str, Any]:
    """Commit and conditions of this measurement, but for what benchmarks/proofs.sh sets."""
    found = {name: told for name, told in conditions().items() if name != "settings"}
    return {"commit": records.commit(), "conditions": found}


def rows_of(measured: Sequence[Record]) -> dict[str, dict[str, str]]:
    """A row for each target, a cell for each data set; and one above those of each check."""
    rows: dict[str, dict[str, str]] = {}
    order = list(dict.fromkeys(target_of(record) for record in measured))
    by_check = sorted(
        measured, key=lambda record: (record["check"], order.index(target_of(record)))
    )
    for check, of_check in groupby(by_check, key=lambda record: record["check"]):
        rows[f"**{check}. {TITLES[check - 1]}**"] = {}
        for (_, what, low, high), alike in groupby(of_check, key=target_of):
            found = list(alike)
            cells = {d: cell([r for r in found if r["data"] == d], low, high) for d in DATA}
            name = what if what not in rows else f"{what}, {bounds(low, high)}"
            rows[name] = {"target": bounds(low, high), **cells}
    return rows


def target_of(record: Record) -> tuple[int, str, float, float]:
    return record["check"], record["what"], record["low"], record["high"]


def bounds(low: float, high: float) -> str:
    if low == high:
        return "yes"
    if math.isinf(low):
        return f"≤ {number(high)}"
    return f"≥ {number(low)}" if math.isinf(high) else f"{number(low)} to {number(high)}"


def number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def cell(found: Sequence[Record], low: float, high: float) -> str:
    """The measurements closest to the bounds; in bold where one is beyond."""
    if not found:
        return ""
    values = [record["value"] for record in found]
    least, most = number(min(values)), number(max(values))
    if low == high:
        text = "yes" if all(record["holds"] for record in found) else "no"
    elif math.isinf(low):
        text = most
    elif math.isinf(high) or least == most:
        text = least
    else:
        text = f"{least} to {most}"
    return text if all(record["holds"] for record in found) else f"**{text}**"


def draw(title: str, rows: Sequence[tuple[str, tuple[int, ...]]], curves: Any) -> Figure:
    """A panel for each data set, in one row for each part of the plot."""
    figure = Figure(figsize=(13, 1 + 3.2 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(DATA) - 1, sharey="row", squeeze=False)
    for axes_of_row, (label, checks) in zip(panels, rows, strict=True):
        for axes, data in zip(axes_of_row, DATA[1:], strict=True):
            draw_curves(axes, [c for c in curves if c["data"] == data and c["check"] in checks])
            axes.set(title=data, xlabel=label)
        axes_of_row[0].set_ylabel("|x - x*|²")
        if axes_of_row[0].lines:
            axes_of_row[0].legend(fontsize="small")
    figure.suptitle(title)
    return figure


def draw_curves(axes: Axes, curves: Sequence[Record]) -> None:
    """Curves of one kind, as their labels end, have one colour."""
    kinds = list(dict.fromkeys(curve["curve"].split(", ")[-1] for curve in curves))
    for curve in curves:
        label = curve["curve"]
        style = "--" if label.startswith(CONTROLS) else "-"
        color = f"C{kinds.index(label.split(', ')[-1])}"
        axes.semilogy(curve["x"], curve["y"], style, color=color, label=label, linewidth=1.4)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
