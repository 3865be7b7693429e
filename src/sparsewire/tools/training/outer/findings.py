"""What a comparison finds: each method's losses, bytes and times beside those of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sparsewire.tools.training.outer.comparison import Comparison, Plan, Studied
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.run import Trained


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
class Outcome:
    """A method's trainings of one length, with several seeds.

    `loss_shares` are final losses over that of the first method with the same seed, `target_step`
    is the step at which the mean loss is as low as that one's in the end, if it is ever.
    """

    steps: int
    seeds: int
    final_loss: float
    loss_shares: list[float]
    target_step: float | None


@dataclass(frozen=True)
class Finding:
    """A method: its trainings, the bytes of a whole one, and its times at each link."""

    method: str
    in_words: str
    rate: float
    outer_rate: float | None
    parameters: int
    whole: Outcome
    longer: Outcome | None
    up: float
    down: float
    most_up: float
    fewer_bytes: float
    over_formula: float | None
    """Bytes sent over those by formula, less one; None where there is no formula."""
    alone_s: float
    reached: dict[str, Reached]


def findings(comparison: Comparison) -> list[Finding]:
    """A finding for each method."""
    first = comparison.studied[0]
    return [_finding(comparison.plan, studied, first) for studied in comparison.studied]


def _finding(plan: Plan, studied: Studied, first: Studied) -> Finding:
    finals = {run.order.seed: run.final_loss for run in first.trained}
    whole = _outcome(plan, studied.trained, finals)
    longer = _outcome(plan, studied.longer, finals) if studied.longer else None
    runs, best = studied.trained, studied.tuned.best
    up = fmean(run.up[-1] for run in runs)
    return Finding(
        method=studied.name,
        in_words=METHODS[studied.name].in_words,
        rate=best.rate,
        outer_rate=best.outer_rate,
        parameters=runs[0].parameters,
        whole=whole,
        longer=longer,
        up=up,
        down=fmean(run.down[-1] for run in runs),
        most_up=fmean(run.most_up[-1] for run in runs),
        fewer_bytes=fmean(run.up[-1] for run in first.trained) / up,
        alone_s=studied.alone_s,
        over_formula=_over_formula(runs),
        reached={
            link: _reached(plan.steps, studied.step_s[link], first.step_s[link], whole, longer)
            for link in plan.links
        },
    )


def _over_formula(runs: Sequence[Trained]) -> float | None:
    expected = [run.told["expected_up"] for run in runs if "expected_up" in run.told]
    return fmean(run.up[-1] for run in runs) / fmean(expected) - 1 if expected else None


def _outcome(plan: Plan, runs: Sequence[Trained], finals: Mapping[int, float]) -> Outcome:
    steps = runs[0].order.steps
    target = fmean(finals[run.order.seed] for run in runs)
    return Outcome(
        steps=steps,
        seeds=len(runs),
        final_loss=fmean(run.final_loss for run in runs),
        loss_shares=[run.final_loss / finals[run.order.seed] for run in runs],
        target_step=first_step_at(target, steps_of(plan, steps), mean_losses(runs)),
    )


def _reached(
    steps: int, step_s: float, first_s: float, whole: Outcome, longer: Outcome | None
) -> Reached:
    reaching = [each.target_step for each in (whole, longer) if each and each.target_step]
    target_s = min(reaching) * step_s if reaching else None
    speed_up = None if target_s is None else steps * first_s / target_s
    return Reached(step_s, steps * step_s, target_s, speed_up)


def steps_of(plan: Plan, steps: int) -> list[int]:
    """The steps of a training of which there are losses."""
    return [*range(0, steps, plan.between), steps]


def mean_losses(runs: Sequence[Trained]) -> list[float]:
    """Over the seeds."""
    return [fmean(each) for each in zip(*(run.losses for run in runs), strict=True)]


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
