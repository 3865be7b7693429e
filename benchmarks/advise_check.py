"""Checks `sparsewire advise` against the lab: predicted and measured steps of six workloads.

    benchmarks/run.sh workload-training-100mbit workload-training-1gbit advise

Measured is what the first two have left in their records. Here each workload is recorded by
`sparsewire profile` over gloo, on a link that is none of those, and asked what it would take on
them. Rows of the record, WORKLOAD/LINK/METHOD, have what was predicted and what was measured; those
of WORKLOAD/LINK have the method that was predicted to be the fastest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import records

from sparsewire.advise.answer import Model
from sparsewire.advise.network import Network
from sparsewire.lab import parse_speed
from sparsewire.profile.recorded import load

METHODS = ("gloo", "sparsewire", "feedback")
LINKS = ("100mbit", "1gbit")
MEASURED = "workload-training-{}"
RECORDED_ON = "10gbit"
HOSTS, STEPS, WARMUP = 4, 8, 2
CLOSE = 0.2
# Methods that differ by less are the same choice.
ALIKE = 1.05
DEADLINE_S = 1200


def recorded(name: str, directory: Path) -> Model:
    """The model of a profile of the workload, recorded here and now."""
    lab = ["sparsewire", "lab", "--no-prefix", "--hosts", str(HOSTS), "--link", RECORDED_ON]
    profile = ["sparsewire", "profile", "--output", str(directory)]
    profile += ["--steps", str(STEPS), "--warmup", str(WARMUP)]
    script = ["python", "-m", "sparsewire.training.workloads", name, "--backend", METHODS[0]]
    script += ["--steps", str(STEPS + WARMUP + 1)]
    command = [*lab, "--", *profile, "--", *script]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    # All ranks share this machine's processors.
    return Model(load(directory), Network(1.0, HOSTS, cores=os.cpu_count()))


def rows(model: Model, name: str, link: str, measured: dict[str, Any]) -> dict[str, Any]:
    """For each method what was predicted for the link, and what was measured there."""
    predicted = {row.method.name: row for row in model.on_link(float(parse_speed(link))).rows}
    found = {}
    for method in METHODS:
        step_s, row = measured[f"{name}/{method}"]["step_s"], predicted[method]
        found[method] = {
            "measured_s": step_s,
            "predicted_s": row.step_s,
            "low_s": row.low_s,
            "high_s": row.high_s,
            "ratio": row.step_s / step_s,
            "is_close": abs(row.step_s / step_s - 1) <= CLOSE,
        }
    return found


def choice(found: dict[str, Any]) -> dict[str, Any]:
    """The method that was predicted to be the fastest, and whether it was."""
    chosen = min(found, key=lambda method: found[method]["predicted_s"])
    least_s = min(figures["measured_s"] for figures in found.values())
    return {"chosen": chosen, "is_right": found[chosen]["measured_s"] <= ALIKE * least_s}


def checked(name: str, known: dict[str, Any]) -> dict[str, Any]:
    """The rows of a workload, which are printed, too."""
    with tempfile.TemporaryDirectory() as directory:
        model = recorded(name, Path(directory))
    kept = {}
    for link in LINKS:
        found = rows(model, name, link, known[MEASURED.format(link)]["figures"])
        kept |= {f"{name}/{link}/{method}": figures for method, figures in found.items()}
        kept[f"{name}/{link}"] = choice(found)
    for row, figures in kept.items():
        print(f"{row:32}", *(f"{key} {told(value)}" for key, value in figures.items()), flush=True)
    return kept


def told(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(figures: dict[str, Any]) -> dict[str, int]:
    """How many predictions are close, and how many choices right."""
    close = [row["is_close"] for row in figures.values() if "is_close" in row]
    right = [row["is_right"] for row in figures.values() if "is_right" in row]
    return {
        "close": sum(close),
        "predictions": len(close),
        "right": sum(right),
        "choices": len(right),
    }


def main() -> None:
    """Check the workloads that were measured on all links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--name", action="append", help="a workload; by default all measured ones")
    parser.add_argument("--record", action="store_true", help="keep the rows in record advise")
    given = parser.parse_args()
    known = records.load()
    measured = known[MEASURED.format(LINKS[0])]["figures"]
    names = given.name or [row for row in measured if "/" not in row]
    kept: dict[str, Any] = {}
    for name in names:
        kept |= checked(name, known)
    kept["all"] = summary(kept)
    print(kept["all"])
    for row, figures in kept.items() if given.record else ():
        records.keep("advise", row, figures, hosts=HOSTS)


if __name__ == "__main__":
    main()
