"""Runs every training of a comparison: in full on loopback, and some steps on emulated links."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sparsewire.experiment.events import Event
from sparsewire.experiment.launch import run_workers
from sparsewire.experiment.site import Loopback, Site
from sparsewire.lab import Lab
from sparsewire.training.method import Method
from sparsewire.training.report import Report, Run
from sparsewire.training.tasks import TASKS, VOCABULARY
from sparsewire.training.trial import Trial

WARMUP_SHARE = 0.02

Follower = Callable[[str, int, Event], None]
"""Takes the description of a training, its number of steps, and an event of it."""


@dataclass(frozen=True)
class Plan:
    """What to train and how; the first method is what the others are compared with.

    `steps` of None are those of the task, and a `warmup` of None is 2% of them. Losses do not
    depend on the links, so that the whole trainings run on loopback; with a `link`, `timed_steps`
    of each are run on emulated hosts, too.
    """

    tasks: list[str]
    methods: list[Method]
    ranks: int
    steps: int | None
    seeds: int
    warmup: int | None
    link: str | None
    timed_steps: int
    text: Path | None


def compare(plan: Plan, follow: Follower) -> Report:
    """Run everything that is planned, one training after another.

    Raises ExperimentError where the text cannot be read, LabError where the lab fails,
    WorkerFailed where a worker does.
    """
    with tempfile.TemporaryDirectory(prefix="sparsewire-training-") as name:
        folder = Path(name)
        corpus = _save_tokens(plan, folder) if "lstm" in plan.tasks else None
        trained = list(_train_all(plan, folder, follow))
        timed = list(_time_all(plan, folder, follow)) if plan.link else []
    return Report(plan.ranks, plan.link, corpus, trained, timed)


def _save_tokens(plan: Plan, folder: Path) -> str:
    """Leave the text of the language model where workers find it; return what it is."""
    import numpy as np

    from sparsewire.demo.corpus import read_corpus

    corpus = read_corpus(plan.text, VOCABULARY, plan.ranks)
    np.save(folder / "tokens.npy", corpus.tokens)
    return f"{corpus.source}: {len(corpus.tokens):,} tokens, {corpus.vocabulary:,} different ones"


def _train_all(plan: Plan, folder: Path, follow: Follower) -> Iterator[Run]:
    for task, seed in _cases(plan.tasks, plan.seeds):
        steps = plan.steps or TASKS[task].steps
        for method in plan.methods:
            warmup = round(WARMUP_SHARE * steps) if plan.warmup is None else plan.warmup
            trial = _trial(plan, folder, task, method, seed, steps, warmup)
            yield _run(nullcontext(Loopback(plan.ranks)), trial, plan.ranks, folder, follow)


def _time_all(plan: Plan, folder: Path, follow: Follower) -> Iterator[Run]:
    for task in plan.tasks:
        for method in plan.methods:
            # Steps that send everything are no measure of the others, so there is no warm-up.
            trial = _trial(plan, folder, task, method, 0, plan.timed_steps, 0, Lab.interface)
            yield _run(Lab(plan.ranks, plan.link), trial, plan.ranks, folder, follow)


def _cases(tasks: Sequence[str], seeds: int) -> Iterator[tuple[str, int]]:
    return ((task, seed) for task in tasks for seed in range(seeds))


def _trial(
    plan: Plan,
    folder: Path,
    task: str,
    method: Method,
    seed: int,
    steps: int,
    warmup: int,
    interface: str | None = None,
) -> Trial:
    return Trial(
        task=task,
        method=str(method),
        steps=steps,
        schedule_steps=max(steps, plan.steps or TASKS[task].steps),
        warmup=warmup,
        seed=seed,
        tokens=str(folder / "tokens.npy"),
        interface=interface,
    )


def _run(
    place: AbstractContextManager[Site], trial: Trial, ranks: int, folder: Path, follow: Follower
) -> Run:
    last: Event = {}

    def gather(event: Event) -> None:
        last.clear()
        last.update(event)
        follow(f"{trial.task}, {trial.method}, seed {trial.seed}", trial.steps, event)

    argv = [sys.executable, "-m", "sparsewire.training.worker", trial.to_json()]
    with place as site:
        run_workers(site, argv, folder / "logs", gather)
    return Run.of(trial, ranks, last)
