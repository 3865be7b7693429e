"""Checks `sparsewire advise` against the lab: predicted and measured steps of trainings.

    python benchmarks/advise_check.py --link 100mbit --link 1gbit \
        "words=python benchmarks/advise_workload.py"

Each workload is NAME=COMMAND. The command gets a method as its last argument, gloo, sparsewire or
feedback; trains by it, under the lab's launcher; and rank 0 prints a line of JSON with "step_s",
the median step. It is recorded over gloo on each link, then run with each method there. Rows of a
record, WORKLOAD/LINK/METHOD, have what was predicted and what was measured.

Other work on the machine makes processors slower for all ranks. So the model is told how many
processors there were, right before, for as many processes as ranks that work for a few
milliseconds now and then, as transfers do. Where others are busy, that varies: trust such rows
little.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import records

from sparsewire.advise.answer import Model
from sparsewire.advise.network import Network
from sparsewire.lab import parse_speed
from sparsewire.profile.recorded import load

METHODS = ("gloo", "sparsewire", "feedback")
CLOSE = 0.2
DEADLINE_S = 1200
BURSTS, BURST_S, PAUSE_S = 60, 0.004, 0.02


def processors(processes: int) -> float:
    """How many processors so many processes get at this moment, that work now and then."""
    with multiprocessing.Pool(processes) as pool:
        slow = statistics.fmean(pool.map(slowness, range(processes)))
    return processes / max(slow, processes / (os.cpu_count() or 1))


def slowness(_: int) -> float:
    """How much longer a short piece of work takes than a processor alone would take for it."""
    taken = 0.0
    for _ in range(BURSTS):
        begin, before = time.perf_counter(), time.process_time()
        while time.process_time() - before < BURST_S:
            pass
        taken += time.perf_counter() - begin
        time.sleep(PAUSE_S)
    return taken / (BURSTS * BURST_S)


@dataclass(frozen=True)
class Setting:
    """A workload on emulated hosts; `steps` of it are recorded."""

    name: str
    command: list[str]
    hosts: int
    link: str
    steps: int

    def measured(self, method: str) -> dict[str, Any]:
        """What rank 0 says of a run with the method."""
        return self._run([*self.command, method])

    def recorded(self, directory: Path) -> Model:
        """The model of a profile recorded over gloo here and now."""
        profile = ["sparsewire", "profile", "--output", str(directory), "--steps", str(self.steps)]
        self._run([*profile, "--", *self.command, METHODS[0]])
        return Model(load(directory), Network(1.0, self.hosts, cores=processors(self.hosts)))

    def _run(self, command: list[str]) -> dict[str, Any]:
        lab = ["sparsewire", "lab", "--no-prefix", "--hosts", str(self.hosts), "--link", self.link]
        done = subprocess.run(
            [*lab, "--", *command], check=True, capture_output=True, text=True, timeout=DEADLINE_S
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        told: dict[str, Any] = json.loads(lines[-1])
        return told


def rows(setting: Setting, methods: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each method what was predicted, and what was measured right before."""
    with tempfile.TemporaryDirectory() as directory:
        model = setting.recorded(Path(directory))
        predicted = {
            row.method.name: row for row in model.on_link(float(parse_speed(setting.link))).rows
        }
        for method in methods:
            row, found = predicted[method], setting.measured(method)
            yield (
                method,
                {
                    "measured_s": found["step_s"],
                    "predicted_s": row.step_s,
                    "low_s": row.low_s,
                    "high_s": row.high_s,
                    "ratio": row.step_s / found["step_s"],
                    "is_close": abs(row.step_s / found["step_s"] - 1) <= CLOSE,
                    "processors": model.network.cores,
                },
            )


def right_choice(found: dict[str, dict[str, Any]]) -> bool:
    """Whether the method that was predicted to be the fastest is one of the fastest, within 5%."""
    chosen = min(found, key=lambda method: found[method]["predicted_s"])
    least: float = min(figures["measured_s"] for figures in found.values())
    return bool(found[chosen]["measured_s"] <= 1.05 * least)


def check(setting: Setting, methods: list[str], record: str | None) -> None:
    """Print what came of a setting, and keep it where a record is named."""
    found = dict(rows(setting, methods))
    for method, figures in found.items():
        name = f"{setting.name}/{setting.link}/{method}"
        print(
            f"{name:40} measured {figures['measured_s']:.4g} s, predicted "
            f"{figures['predicted_s']:.4g} s: {figures['ratio']:.2f}; {figures['processors']:.2g} "
            "processors",
            flush=True,
        )
        if record:
            records.keep(record, name, figures, hosts=setting.hosts)
    print("the choice is", "right" if right_choice(found) else "wrong", flush=True)


def main() -> None:
    """Check all workloads on all links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("workloads", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--link", action="append", required=True)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20, help="steps to record")
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--record", help="a record in benchmarks/records to keep rows in")
    given = parser.parse_args()
    for workload in given.workloads:
        name, _, command = workload.partition("=")
        for link in given.link:
            setting = Setting(name, shlex.split(command), given.hosts, link, given.steps)
            check(setting, given.method or list(METHODS), given.record)


if __name__ == "__main__":
    main()
