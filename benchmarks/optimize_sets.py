"""Trains linear models on LIBSVM's files over emulated hosts: record optimize.

    python benchmarks/optimize_sets.py DATA --record

DATA has news20.bz2 and a9a. 4 hosts at 100 Mbit/s, 10 epochs, seed 0, as root. Seconds are medians
of several runs; all else repeats but for a few bytes. The lowest objective is what scikit-learn's
solver finds on the same rows. Dense sums are computed, for a ring, and take what the link does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import records
from sklearn.linear_model import LogisticRegression

from sparsewire.tools.lab import parse_speed
from sparsewire.tools.optimize.problems.examples import Examples
from sparsewire.tools.optimize.task import MODELS, joined, load
from sparsewire.tools.optimize.train.run import split
from sparsewire.tools.optimize.train.training import Training

HOSTS, LINK = 4, "100mbit"
RUNS: dict[str, tuple[str, ...]] = {
    "news20/sgd": ("news20.bz2", "--normalize"),
    "news20/sgd-int8": ("news20.bz2", "--normalize", "--precision", "int8"),
    "news20/bcd": ("news20.bz2", "--normalize", "--method", "bcd", "--block", "256"),
    "a9a/sgd": ("a9a",),
    "a9a/bcd": ("a9a", "--method", "bcd", "--block", "8"),
}
DEADLINE_S = 500


def run(data: Path, name: str, *options: str) -> dict[str, Any]:
    """One training in the lab, as JSON has it."""
    lab = ["sparsewire", "lab", "--no-prefix", "--hosts", str(HOSTS), "--link", LINK, "--"]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "run.json")
        optimize = ["sparsewire", "optimize", str(data / name), *options, "--json", str(result)]
        subprocess.run([*lab, *optimize], check=True, capture_output=True, timeout=DEADLINE_S)
        found: dict[str, Any] = json.loads(result.read_text())
    return found


def row_of(runs: list[dict[str, Any]]) -> records.Row:
    last, setting = runs[0]["epochs"][-1], runs[0]["setting"]
    dense = setting["dense_bytes"] * last["epoch"]
    return {
        "objective": last["objective"],
        "training_share": last["train_accuracy"],
        "held_out_share": last["test_accuracy"],
        "sent_bytes": last["bytes_sent"],
        "dense_bytes": dense,
        "collectives_s": median(found["epochs"][-1]["communication_s"] for found in runs),
        "dense_s": 8 * dense / parse_speed(LINK),
        "runs": len(runs),
    }


def lowest(request: dict[str, Any]) -> float:
    """The objective where scikit-learn's solver ends, on the rows of this training."""
    task = Training(**request)
    with joined() as comm:
        found = load(task, comm).examples
    rows, _ = split(len(found.labels), task.test_share, task.seed)
    kept = Examples(found.features[rows], found.labels[rows])
    l2 = 1 / len(rows) if task.l2 is None else task.l2
    strength = 1 / (l2 * len(rows))
    solver = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=10_000)
    weights = solver.fit(kept.features, kept.labels).coef_[0]
    return float(MODELS[task.model](kept, [range(len(rows))], l2=l2).composite(weights))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", choices=RUNS, action="append", help="by default all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep it in record optimize")
    given = parser.parse_args()
    for name in given.name or RUNS:
        runs = [run(given.data, *RUNS[name]) for _ in range(given.runs)]
        row = {**row_of(runs), "lowest_objective": lowest(runs[0]["request"])}
        print(name, row, flush=True)
        if given.record:
            records.keep("optimize", name, row, hosts=HOSTS, link=LINK)


if __name__ == "__main__":
    main()
