"""Checks `sparsewire advise` against the lab: predicted and measured steps of trainings.

    benchmarks/run.sh workload-training-100mbit workload-training-1gbit advise
    python benchmarks/advise_check.py --cases held-out --link 1gbit --record

Each training is recorded by `sparsewire profile` over gloo, on a link that none is asked for, and
asked what it would take on others. Three kinds of cases, of which --cases names some:

workloads: the six of docs/workloads.md, against what `bench workload` has left in its records.
held-out: a recommender that nothing was fitted to (benchmarks/two_towers.py), measured here and now
    with every method; also whether advise names the fastest of all.
no-gain: dense trainings on fast links, and a small one, measured here and now, where sparsewire
    gains little or nothing: advise must not say that it pays where it does not.

A case with one link takes some minutes: --name and --link choose. Rows of the record,
CASE/LINK/METHOD, have what was predicted and what was measured; those of CASE/LINK the choice.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import records

from sparsewire.profile.records.recorded import load
from sparsewire.tools.advise.answer import Gain, Model, OnLink
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.lab import parse_speed

METHODS = ("gloo", "sparsewire", "feedback")
TOWER_METHODS = ("gloo", "gloo-sparse", "sparsewire", "sparse", "feedback", "diana")
LINKS = ("100mbit", "1gbit")
FAST_LINKS = ("10gbit",)
MEASURED = "workload-training-{}"
RECORDED_ON, OTHERWISE_ON = "10gbit", "5gbit"
# Samples are of the steps that are measured: gradients get sparser as networks learn.
HOSTS, STEPS, WARMUP, EVERY = 4, 6, 2, 2
MEASURED_STEPS, SHORT_STEPS = 8, 40
CLOSE, HELD_OUT_CLOSE = 0.2, 0.25
# Methods that differ by less are the same choice.
ALIKE = 1.05
DEADLINE_S = 500
TOWERS = [sys.executable, str(Path(__file__).with_name("two_towers.py"))]
WORKLOAD = [sys.executable, "-m", "sparsewire.tools.training.workloads"]

Figures = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A training: its script, and on which links it is predicted and measured with what.

    `measured` gives seconds by method on a link. Predictions are close within `close`.
    """

    name: str
    script: Callable[[int], list[str]]
    links: Sequence[str]
    measured: Callable[[str], Mapping[str, float]]
    close: float = CLOSE
    recorded_on: str = RECORDED_ON


def lab(link: str, command: Sequence[str]) -> str:
    """What a command prints on four emulated hosts."""
    hosts = ["sparsewire", "lab", "--no-prefix", "--hosts", str(HOSTS), "--link", link]
    done = subprocess.run(
        [*hosts, "--", *command], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    return done.stdout


def recorded(case: Case, directory: Path) -> Model:
    """The model of a profile of the training, recorded here and now."""
    profile = ["sparsewire", "profile", "--output", str(directory), "--every", str(EVERY)]
    profile += ["--steps", str(STEPS), "--warmup", str(WARMUP)]
    # One more, behind which rows are rehearsed, and one that begins with that.
    lab(case.recorded_on, [*profile, "--", *case.script(STEPS + WARMUP + 2)])
    # All ranks share this machine's processors.
    return Model(load(directory), Network(1.0, HOSTS, cores=os.cpu_count()))


def towers(method: str, link: str) -> float:
    """The median step of the recommender, in seconds."""
    steps = SHORT_STEPS if "sparse" in method and method != "sparsewire" else MEASURED_STEPS
    told = lab(link, [*TOWERS, "--method", method, "--steps", str(steps)])
    return float(told.split()[-1])


def workload(script: Sequence[str], backend: str, link: str) -> float:
    """The median step of a workload as a script, in seconds."""
    told = lab(link, [*script, "--backend", backend, "--steps", str(MEASURED_STEPS)])
    steps = sorted(float(ms) / 1e3 for ms in re.findall(r"([\d.e+]+) ms", told)[2:])
    return steps[len(steps) // 2]


def kept_workload(name: str, known: Figures, link: str) -> dict[str, float]:
    """What `bench workload` has measured."""
    figures = known[MEASURED.format(link)]["figures"]
    return {method: figures[f"{name}/{method}"]["step_s"] for method in METHODS}


def workload_script(name: str) -> Callable[[int], list[str]]:
    return lambda steps: [*WORKLOAD, name, "--backend", "gloo", "--steps", str(steps)]


def workload_cases() -> Iterator[Case]:
    """Those of the records."""
    known = records.load()
    for name in known[MEASURED.format(LINKS[0])]["figures"]:
        if "/" not in name:
            yield Case(
                name,
                workload_script(name),
                LINKS,
                lambda link, name=name: kept_workload(name, known, link),
            )


def held_out_cases() -> Iterator[Case]:
    yield Case(
        "two-towers",
        lambda steps: [*TOWERS, "--steps", str(steps)],
        LINKS,
        lambda link: {method: towers(method, link) for method in TOWER_METHODS},
        HELD_OUT_CLOSE,
    )


def no_gain_cases() -> Iterator[Case]:
    """ResNet's gradients are dense, and BERT's nearly; a tiny model has little to send."""
    for name, size, links in (
        ("resnet152", "here", FAST_LINKS),
        ("bert", "here", FAST_LINKS),
        ("lstm", "tiny", ("1gbit",)),
    ):
        script = [*WORKLOAD, name, "--size", size]
        yield Case(
            f"{name}-{size}-no-gain",
            lambda steps, script=script: [*script, "--backend", "gloo", "--steps", str(steps)],
            links,
            lambda link, script=script: {
                backend: workload(script, backend, link) for backend in ("gloo", "sparsewire")
            },
            recorded_on=OTHERWISE_ON,
        )


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "workloads": workload_cases,
    "held-out": held_out_cases,
    "no-gain": no_gain_cases,
}


def rows(found: OnLink, measured: Mapping[str, float], close: float) -> dict[str, Figures]:
    """For each method what was predicted for the link, and what was measured there."""
    predicted = {row.method.name: row for row in found.rows}
    return {
        method: {
            "measured_s": step_s,
            "predicted_s": predicted[method].step_s,
            "low_s": predicted[method].low_s,
            "high_s": predicted[method].high_s,
            "ratio": predicted[method].step_s / step_s,
            "is_close": abs(predicted[method].step_s / step_s - 1) <= close,
            "is_inside": predicted[method].low_s <= step_s <= predicted[method].high_s,
        }
        for method, step_s in measured.items()
    }


def choice(kept: Mapping[str, Figures]) -> Figures:
    """The method that was predicted to be the fastest, and whether it was."""
    chosen = min(kept, key=lambda method: kept[method]["predicted_s"])
    least_s = min(figures["measured_s"] for figures in kept.values())
    return {"chosen": chosen, "is_right": kept[chosen]["measured_s"] <= ALIKE * least_s}


def said(found: OnLink, measured: Mapping[str, float]) -> Figures:
    """What was said of sparsewire without loss, and whether what was measured agrees.

    "It pays" is right where it was faster, "does not pay" and "no difference" where it was not;
    "may pay" is right either way.
    """
    named = {row.method.name: row.method for row in found.rows if row.method.is_lossless}
    known = {name: step_s for name, step_s in measured.items() if name in named}
    ours = min(step_s for name, step_s in known.items() if named[name].needs_sparsewire)
    theirs = min(step_s for name, step_s in known.items() if not named[name].needs_sparsewire)
    gained = theirs / ours
    is_true = {
        Gain.pays: gained > 1,
        Gain.may_pay: True,
        Gain.alike: gained < ALIKE * ALIKE,
        Gain.loses: gained < ALIKE,
    }[found.gain]
    return {"said": found.gain.value, "gained": gained, "is_true": is_true}


def checked(case: Case, links: Sequence[str]) -> Figures:
    """The rows of a case, which are printed, too."""
    with tempfile.TemporaryDirectory() as directory:
        model = recorded(case, Path(directory))
    kept: Figures = {}
    for link in [link for link in case.links if link in links or not links]:
        measured, on_link = case.measured(link), model.on_link(float(parse_speed(link)))
        found = rows(on_link, measured, case.close)
        kept |= {f"{case.name}/{link}/{method}": figures for method, figures in found.items()}
        kept[f"{case.name}/{link}"] = choice(found) | said(on_link, measured)
    for row, figures in kept.items():
        print(f"{row:32}", *(f"{key} {told(value)}" for key, value in figures.items()), flush=True)
    return kept


def told(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(figures: Figures) -> dict[str, int]:
    """How many predictions are close and inside their ranges, how many choices and words right."""

    def count(name: str) -> int:
        return sum(bool(row.get(name)) for row in figures.values())

    return {
        "close": count("is_close"),
        "inside": count("is_inside"),
        "predictions": sum("is_close" in row for row in figures.values()),
        "right": count("is_right"),
        "true": count("is_true"),
        "choices": sum("is_right" in row for row in figures.values()),
    }


def main() -> None:
    """Check the cases that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", action="append", choices=CASES, help="default: workloads")
    parser.add_argument("--name", action="append", help="a case of these, like lstm; default: all")
    parser.add_argument("--link", action="append", help="a link of these, like 1gbit; default: all")
    parser.add_argument("--record", action="store_true", help="keep the rows in record advise")
    given = parser.parse_args()
    for kind in given.cases or ["workloads"]:
        kept: Figures = {}
        for case in CASES[kind]():
            if not given.name or case.name in given.name:
                kept |= checked(case, given.link or ())
        kept["all" if kind == "workloads" else kind] = counts = summary(kept)
        print(kind, counts)
        for row, figures in kept.items() if given.record else ():
            records.keep("advise", row, figures, hosts=HOSTS)


if __name__ == "__main__":
    main()
