"""Compares ways to average: rates tuned, several trainings of each, and steps timed at each link.

A training's losses and bytes do not depend on how fast links are, so whole trainings run on
emulated hosts without a limit, where interfaces count. Times come from further runs on links of
each speed: the same method on the same model, whose passes sleep for as long as one takes a replica
that has a core to itself. So replicas that share few cores take the time of replicas that do not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.training.outer.gpt import Shape
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.order import Order, Setting
from sparsewire.tools.training.outer.run import Runs, Trained
from sparsewire.tools.training.outer.text import save_characters
from sparsewire.tools.training.outer.tuning import Tuned, tune_all

PRETRAINING_RATE = 2e-3
PASSES = 60
"""Passes by which one is timed."""
WARM_STEPS, TIMED_STEPS, PERIODS = 3, 8, 2
"""Steps before the first timed one and timed ones, at least; and timed periods of a method."""


@dataclass(frozen=True)
class Plan:
    """The trainings to run; `seeds` says how many each method has. The first one is compared with.

    With `compute_s` a pass sleeps for so long; None: as long as one takes here. `folder` keeps what
    was run; None: nothing is kept.
    """

    seeds: Mapping[str, int]
    hosts: int
    links: Sequence[str]
    steps: int
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
    step_s: dict[str, float]

    @property
    def seeds(self) -> list[int]:
        return [run.order.seed for run in self.trained]


@dataclass(frozen=True)
class Comparison:
    """All of it; the first method is the one that the others are compared with."""

    plan: Plan
    text: str
    pass_s: float
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
        pass_s = plan.compute_s or runs.pass_seconds(_alone(PASSES))
        runs.pretrain(_alone(plan.pretraining_steps))
        return Comparison(plan, text, pass_s, _studied(plan, runs, pass_s))


def _alone(steps: int) -> Order:
    """What one process does before all trainings."""
    return Order("none", PRETRAINING_RATE, None, 0, steps, steps)


def _digest(plan: Plan) -> str:
    """Names the parameters to start from."""
    return f"{plan.shape.layers}x{plan.shape.width}-{plan.pretraining_steps}"


def _studied(plan: Plan, runs: Runs, pass_s: float) -> list[Studied]:
    """Every method, in few starts of the workers: those of trials, of trainings, of each link."""
    open_links = Cluster(plan.hosts, emulated=True)

    def losses(orders: list[Order]) -> list[float]:
        done = runs.train(open_links, orders)
        return [done[order].final_loss for order in orders]

    all_tuned = tune_all([METHODS[name] for name in plan.seeds], plan.tuning_steps, losses)
    tuned = dict(zip(plan.seeds, all_tuned, strict=True))
    wholes = {name: _whole(plan, own.best, plan.seeds[name]) for name, own in tuned.items()}
    trained = runs.train(open_links, [order for orders in wholes.values() for order in orders])
    emulated = {name: _emulated(plan, orders[0], pass_s) for name, orders in wholes.items()}
    timed = {
        link: runs.train(Cluster(plan.hosts, emulated=True, link=link), emulated.values())
        for link in plan.links
    }
    return [
        Studied(
            name,
            tuned[name],
            [trained[order] for order in wholes[name]],
            {link: _step_s(done[emulated[name]]) for link, done in timed.items()},
        )
        for name in plan.seeds
    ]


def _whole(plan: Plan, best: Order, seeds: int) -> list[Order]:
    """Trainings with the best rates."""
    return [
        replace(best, seed=seed, steps=plan.steps, schedule_steps=plan.steps)
        for seed in range(seeds)
    ]


def _emulated(plan: Plan, whole: Order, pass_s: float) -> Order:
    """Steps to be timed, of whole periods."""
    period = METHODS[whole.method].period
    timed = period * max(PERIODS, -(-TIMED_STEPS // period))
    return replace(whole, steps=_warm_steps(whole) + timed, compute_s=pass_s)


def _warm_steps(order: Order) -> int:
    """Steps before the first timed one."""
    period = METHODS[order.method].period
    return period * -(-WARM_STEPS // period)


def _step_s(run: Trained) -> float:
    """The seconds of a step, the mean over whole periods."""
    warm = _warm_steps(run.order)
    return (run.ends_s[-1] - run.ends_s[warm - 1]) / (run.order.steps - warm)


@dataclass(frozen=True)
class Reached:
    """When a method's mean loss is as low as the first one's in the end, at a link.

    None where it never is. `speed_up` is how many times as soon that is as with the first method.
    """

    step_s: float
    training_s: float
    target_s: float | None
    speed_up: float | None


@dataclass(frozen=True)
class Finding:
    """A method over its seeds; shares are of the first method's loss with the same seed."""

    method: str
    in_words: str
    rate: float
    outer_rate: float | None
    seeds: int
    parameters: int
    final_loss: float
    loss_shares: list[float]
    up: float
    down: float
    most_up: float
    fewer_bytes: float
    target_step: float | None
    reached: dict[str, Reached]


def findings(comparison: Comparison) -> list[Finding]:
    """A finding for each method."""
    first = comparison.studied[0]
    return [_finding(comparison.plan, studied, first) for studied in comparison.studied]


def _finding(plan: Plan, studied: Studied, first: Studied) -> Finding:
    finals = {run.order.seed: run.final_loss for run in first.trained}
    shares = [run.final_loss / finals[run.order.seed] for run in studied.trained]
    target = fmean(finals[seed] for seed in studied.seeds)
    step = first_step_at(target, steps_of(plan), mean_losses(studied))
    runs = studied.trained
    up = fmean(run.up[-1] for run in runs)
    return Finding(
        method=studied.name,
        in_words=METHODS[studied.name].in_words,
        rate=studied.tuned.best.rate,
        outer_rate=studied.tuned.best.outer_rate,
        seeds=len(runs),
        parameters=runs[0].parameters,
        final_loss=fmean(run.final_loss for run in runs),
        loss_shares=shares,
        up=up,
        down=fmean(run.down[-1] for run in runs),
        most_up=fmean(run.most_up[-1] for run in runs),
        fewer_bytes=fmean(run.up[-1] for run in first.trained) / up,
        target_step=step,
        reached={
            link: _reached(plan.steps, studied.step_s[link], first.step_s[link], step)
            for link in plan.links
        },
    )


def _reached(steps: int, step_s: float, first_s: float, target_step: float | None) -> Reached:
    target_s = None if target_step is None else target_step * step_s
    speed_up = None if target_s is None else steps * first_s / target_s
    return Reached(step_s, steps * step_s, target_s, speed_up)


def steps_of(plan: Plan) -> list[int]:
    """The steps of which there are losses."""
    return [*range(0, plan.steps, plan.between), plan.steps]


def mean_losses(studied: Studied) -> list[float]:
    """Over the seeds."""
    return [fmean(each) for each in zip(*(run.losses for run in studied.trained), strict=True)]


def first_step_at(target: float, steps: Sequence[int], losses: Sequence[float]) -> float | None:
    """Where the line through the losses first comes down to the target; None if it never does."""
    if losses[0] <= target:
        return float(steps[0])
    for number in range(1, len(losses)):
        before, after = losses[number - 1], losses[number]
        if after <= target:
            share = (before - target) / (before - after)
            return steps[number - 1] + share * (steps[number] - steps[number - 1])
    return None
