"""Trains over one backend after the other, under equal conditions, and gathers a report."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsewire.demo.corpus import Corpus
from sparsewire.demo.report import Report, Run, Setting
from sparsewire.experiment.events import Event
from sparsewire.experiment.launch import run_workers
from sparsewire.experiment.site import Loopback, Site
from sparsewire.lab import Lab

Follower = Callable[[str, Event], None]
"""Takes a backend's name and an event of its training."""


@dataclass(frozen=True)
class Plan:
    """What to run and where; without a link, on loopback."""

    backends: list[str]
    workers: int
    steps: int
    seed: int
    link: str | None
    output: Path


def compare(plan: Plan, corpus: Corpus, follow: Follower) -> Report:
    """Train once over each backend; leave the tokens and the workers' logs in the output folder.

    Raises LabError where the lab fails, WorkerFailed where a worker does.
    """
    plan.output.mkdir(parents=True, exist_ok=True)
    tokens = plan.output / "tokens.npy"
    np.save(tokens, corpus.tokens)
    setting = Setting(
        workers=plan.workers,
        steps=plan.steps,
        seed=plan.seed,
        link=plan.link,
        corpus=corpus.source,
        tokens=len(corpus.tokens),
        vocabulary=corpus.vocabulary,
    )
    runs = [_train(plan, setting, backend, tokens, follow) for backend in plan.backends]
    return Report(setting, runs)


def _train(plan: Plan, setting: Setting, backend: str, tokens: Path, follow: Follower) -> Run:
    events: list[Event] = []

    def gather(event: Event) -> None:
        events.append(event)
        follow(backend, event)

    follow(backend, {"event": "launched"})
    with _site(plan) as site:
        options = ["--backend", backend, "--tokens", str(tokens)]
        options += ["--steps", str(plan.steps), "--seed", str(plan.seed)]
        if plan.link is not None:
            options += ["--interface", site.interface]
        argv = [sys.executable, "-m", "sparsewire.demo.train", *options]
        run_workers(site, argv, plan.output / "logs" / backend, gather)
    return Run.from_events(backend, events, setting)


def _site(plan: Plan) -> AbstractContextManager[Site]:
    return (
        nullcontext(Loopback(plan.workers)) if plan.link is None else Lab(plan.workers, plan.link)
    )
