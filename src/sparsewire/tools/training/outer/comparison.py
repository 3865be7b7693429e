"""Compares ways to average: rates tuned, several trainings of each, and steps timed at each link.

A training's losses and bytes do not depend on how fast links are, so whole trainings run on
emulated hosts without a limit, where interfaces count. Times come from further runs on links of
each speed: the same method on the same model, whose steps sleep for as long as one takes a replica
that has a core to itself. So replicas that share few cores take the time of some that do not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.training.outer.gpt import Shape
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.order import Order, Setting
from sparsewire.tools.training.outer.run import Runs, Trained
from sparsewire.tools.training.outer.text import save_characters
from sparsewire.tools.training.outer.tuning import Train, Tuned, tune_all

PRETRAINING_RATE = 2e-3
ALONE_STEPS = 60
"""Steps of a replica alone by which one is timed."""
WARM_STEPS, TIMED_STEPS, PERIODS = 3, 8, 2
"""Steps before the first timed one and timed ones, at least; and timed periods of a method."""


@dataclass(frozen=True)
class Plan:
    """The trainings to run; `seeds` says how many each method has. The first one is compared with.

    Methods that send seldom are also trained for `longer_steps`, with `longer_seeds`: they can read
    more in the time of the first one's training.

    With `compute_s` a step sleeps for so long; None: as long as one takes here. `folder` keeps what
    was run; None: nothing is kept.
    """

    seeds: Mapping[str, int]
    longer_seeds: int
    hosts: int
    links: Sequence[str]
    steps: int
    longer_steps: int
    tuning_steps: int
    pretraining_steps: int
    between: int
    shape: Shape
    compute_s: float | None
    text: Path | None
    folder: Path | None


@dataclass(frozen=True)
class Studied:
    """A method: its tuning, its trainings, and the seconds of a step at each link."""

    name: str
    tuned: Tuned
    trained: list[Trained]
    longer: list[Trained]
    alone_s: float
    """A step of a replica alone, which a timed step sleeps for."""
    step_s: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """All of it; the first method is the one that the others are compared with."""

    plan: Plan
    text: str
    studied: list[Studied]


def compare(plan: Plan, move: Move) -> Comparison:
    """Run everything that is planned and not kept.

    Raises ExperimentError where there is no text, LabError where the lab fails, WorkerFailed where
    a worker does.
    """
    with tempfile.TemporaryDirectory(prefix="sparsewire-outer-") as name:
        folder = plan.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        characters = folder / "characters.npy"
        text = save_characters(plan.text, characters)
        start = folder / f"start-{_digest(plan)}.npy"
        setting = Setting(str(characters), str(start), plan.shape, plan.between)
        runs = Runs(setting, folder, move)
        alone_s = _alone_s(plan, runs)
        runs.pretrain(Order("", PRETRAINING_RATE, None, 0, *[plan.pretraining_steps] * 2))
        return Comparison(plan, text, _studied(plan, runs, alone_s))


def _alone_s(plan: Plan, runs: Runs) -> dict[str, float]:
    """Seconds of a step of each method's replica alone, which its optimizer decides."""
    if plan.compute_s:
        return dict.fromkeys(plan.seeds, plan.compute_s)
    found: dict[object, float] = {}
    for name in plan.seeds:
        method = METHODS[name]
        if method.inner not in found:
            order = Order(name, method.rates[0], None, 0, ALONE_STEPS, ALONE_STEPS)
            found[method.inner] = runs.step_seconds(order)
    return {name: found[METHODS[name].inner] for name in plan.seeds}


def _digest(plan: Plan) -> str:
    """Names the parameters to start from."""
    return f"{plan.shape.layers}x{plan.shape.width}-{plan.pretraining_steps}"


def _studied(plan: Plan, runs: Runs, alone_s: Mapping[str, float]) -> list[Studied]:
    """Every method, in few starts of the workers: those of trials, of trainings, of each link."""
    open_links = Cluster(plan.hosts, emulated=True)

    def losses(orders: list[Order]) -> list[float]:
        done = runs.train(open_links, orders)
        return [done[order].final_loss for order in orders]

    tuned = _tuned(plan, losses)
    wholes = {name: _orders(own.best, plan.steps, plan.seeds[name]) for name, own in tuned.items()}
    longer = {name: _longer(plan, own.best) for name, own in tuned.items()}
    each = [*wholes.values(), *longer.values()]
    # Without a loss, several packets may pass as one, whose headers are counted once.
    counted = Cluster(plan.hosts, emulated=True, loss=0.0)
    trained = runs.train(counted, [order for orders in each for order in orders])
    emulated = {name: _emulated(plan, orders[0], alone_s[name]) for name, orders in wholes.items()}
    timed = {
        link: runs.train(Cluster(plan.hosts, emulated=True, link=link), emulated.values())
        for link in plan.links
    }
    return [
        Studied(
            name,
            tuned[name],
            [trained[order] for order in wholes[name]],
            [trained[order] for order in longer[name]],
            alone_s[name],
            {link: _step_s(done[emulated[name]]) for link, done in timed.items()},
        )
        for name in plan.seeds
    ]


def _tuned(plan: Plan, train: Train) -> dict[str, Tuned]:
    """The rates of each method, which may be those of another one."""
    alike = {name: METHODS[name].tuned_as for name in plan.seeds}
    own = [name for name, other in alike.items() if other not in plan.seeds]
    found = dict(
        zip(own, tune_all([METHODS[name] for name in own], plan.tuning_steps, train), strict=True)
    )
    shared = {
        name: Tuned(replace(found[other].best, method=name), [])
        for name, other in alike.items()
        if other in found
    }
    return {name: {**found, **shared}[name] for name in plan.seeds}


def _orders(best: Order, steps: int, seeds: int) -> list[Order]:
    """Trainings with the best rates."""
    return [replace(best, seed=seed, steps=steps, schedule_steps=steps) for seed in range(seeds)]


def _longer(plan: Plan, best: Order) -> list[Order]:
    """Longer trainings with the best rates, of methods that do not send at each step."""
    sends_seldom = METHODS[best.method].period > 1
    return _orders(best, plan.longer_steps, plan.longer_seeds if sends_seldom else 0)


def _emulated(plan: Plan, whole: Order, alone_s: float) -> Order:
    """Steps to be timed, of whole periods."""
    period = METHODS[whole.method].period
    timed = period * max(PERIODS, -(-TIMED_STEPS // period))
    return replace(whole, steps=_warm_steps(whole) + timed, compute_s=alone_s)


def _warm_steps(order: Order) -> int:
    """Steps before the first timed one."""
    period = METHODS[order.method].period
    return period * -(-WARM_STEPS // period)


def _step_s(run: Trained) -> float:
    """The seconds of a step, the mean over whole periods."""
    warm = _warm_steps(run.order)
    return (run.ends_s[-1] - run.ends_s[warm - 1]) / (run.order.steps - warm)
