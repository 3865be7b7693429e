"""Runs every training of a comparison: in full on loopback, and some steps on emulated links."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.progress import Move
from sparsewire.training.averaging import Averaging
from sparsewire.training.corpus import save_corpus
from sparsewire.training.run import Trained, train
from sparsewire.training.tasks import TASKS, Trial

WARMUP_SHARE = 0.02
VOCABULARY = 16_000


@dataclass(frozen=True)
class Plan:
    """What to train and how; the first method is what the others are compared with.

    `steps` of None are those of the task, and a `warmup` of None is 2% of them. Losses do not
    depend on the links, so that the whole trainings run on loopback; with a `link`, `timed_steps`
    of each are run on emulated hosts, too.
    """

    tasks: list[str]
    methods: list[Averaging]
    ranks: int
    steps: int | None
    seeds: int
    warmup: int | None
    link: str | None
    timed_steps: int
    text: Path | None


@dataclass(frozen=True)
class Comparison:
    """All trainings; `timed` are those on emulated links, `trained` the whole ones on loopback."""

    ranks: int
    link: str | None
    corpus: str | None
    trained: list[Trained]
    timed: list[Trained]


def compare(plan: Plan, move: Move) -> Comparison:
    """Run everything that is planned, one training after another.

    Raises ExperimentError where the text cannot be read, LabError where the lab fails,
    WorkerFailed where a worker does.
    """
    with tempfile.TemporaryDirectory(prefix="sparsewire-training-") as name:
        folder, corpus = Path(name), None
        if "lstm" in plan.tasks:
            corpus = str(save_corpus(plan.text, VOCABULARY, plan.ranks, folder / "tokens.npy"))
        trained = list(_run_all(_whole(plan, folder), Cluster(plan.ranks), folder, move))
        timed = []
        if plan.link:
            emulated = Cluster(plan.ranks, emulated=True, link=plan.link)
            timed = list(_run_all(_timed(plan, folder), emulated, folder, move))
    return Comparison(plan.ranks, plan.link, corpus, trained, timed)


def _run_all(
    trials: Iterator[Trial], cluster: Cluster, folder: Path, move: Move
) -> Iterator[Trained]:
    for trial in trials:
        name = f"{trial.task}, {trial.method}, seed {trial.seed}, on {cluster.place}"
        yield train(trial, cluster, folder / "logs", name, move)


def _whole(plan: Plan, folder: Path) -> Iterator[Trial]:
    for task in plan.tasks:
        steps = plan.steps or TASKS[task].steps
        warmup = round(WARMUP_SHARE * steps) if plan.warmup is None else plan.warmup
        for seed in range(plan.seeds):
            for method in plan.methods:
                trial = Trial(task, str(method), steps, seed, schedule_steps=steps, warmup=warmup)
                yield replace(trial, tokens=str(folder / "tokens.npy"))


def _timed(plan: Plan, folder: Path) -> Iterator[Trial]:
    """Some steps of each; those that send everything are no measure, so there is no warm-up."""
    once = replace(plan, seeds=1, warmup=0)
    for trial in _whole(once, folder):
        whole = max(trial.steps, plan.timed_steps)
        yield replace(trial, steps=plan.timed_steps, schedule_steps=whole)
