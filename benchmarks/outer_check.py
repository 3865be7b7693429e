"""Whether steps that sleep take the time of steps that compute, in `sparsewire bench outer`.

    python benchmarks/outer_check.py FOLDER --record

FOLDER is the one that `sparsewire bench outer --folder` has filled. On links of one speed, methods
take real steps; beside them, they take steps that sleep for as long as a pass takes while all
replicas compute on this machine's few processors, which is how the real ones ran.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import records

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import bars
from sparsewire.tools.training.outer.gpt import Shape
from sparsewire.tools.training.outer.order import HEADS, Order, Setting
from sparsewire.tools.training.outer.run import Runs, Trained

REPLICAS = 4
SHAPE = Shape(2, 192, HEADS, 64, 2)
STEPS = {"ddp-gloo": 40, "diloco": 90, "sparseloco": 90}
"""Of each method, of which the first third is not timed."""
RATE = 1e-3


def step_s(run: Trained) -> float:
    """The mean of the last two thirds."""
    warm = run.order.steps // 3
    return (run.ends_s[-1] - run.ends_s[warm - 1]) / (run.order.steps - warm)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", default="start-2x192-3000.npy", help="the checkpoint's file")
    parser.add_argument("--link", default="100mbit")
    parser.add_argument("--record", action="store_true", help="add rows to the record outer_check")
    told = parser.parse_args()
    setting = Setting(
        str(told.folder / "characters.npy"), str(told.folder / told.start), SHAPE, between=1000
    )
    real = [Order(name, RATE, None, 0, steps, steps) for name, steps in STEPS.items()]
    with bars() as move:
        runs = Runs(setting, told.folder, move)
        open_links = Cluster(REPLICAS, emulated=True)
        # A pass while nothing waits for a link: most of these steps send nothing.
        computing = real[1]
        busy_s = step_s(runs.train(open_links, [computing])[computing])
        shaped = Cluster(REPLICAS, emulated=True, link=told.link)
        slept = [replace(order, compute_s=busy_s) for order in real]
        done = runs.train(shaped, [*real, *slept])
    for one, other in zip(real, slept, strict=True):
        row = {"real_step_s": step_s(done[one]), "slept_step_s": step_s(done[other])}
        row["slept_over_real"] = row["slept_step_s"] / row["real_step_s"]
        print(one.method, row, flush=True)
        if told.record:
            records.keep("outer_check", one.method, {**row, "busy_step_s": busy_s})


if __name__ == "__main__":
    main()
