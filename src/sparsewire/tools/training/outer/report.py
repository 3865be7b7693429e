"""What `sparsewire bench outer` shows: losses beside bytes, times at each link, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from statistics import fmean
from typing import Any

from sparsewire.tools.experiment.report import Column, Report, number, table
from sparsewire.tools.training.outer.comparison import Comparison, Studied
from sparsewire.tools.training.outer.curves import curves
from sparsewire.tools.training.outer.findings import Finding, Outcome, findings, steps_of


def outer_report(comparison: Comparison) -> Report:
    """Tables of losses and bytes and of times, all numbers, and the losses as a picture."""
    found = findings(comparison)
    record = {
        "setting": _setting(comparison),
        "outer": [asdict(finding) for finding in found],
        "tuning": [trial for studied in comparison.studied for trial in _trials(studied)],
        "runs": [run for studied in comparison.studied for run in _runs(comparison, studied)],
    }
    losses = table(_LOSSES, found, "Held-out losses, and bytes of a replica's interface")
    times = table(_time_columns(comparison), found, "Times, with computation that is slept")
    return Report([_describe(comparison), losses, times], record, lambda: curves(comparison))


def _setting(comparison: Comparison) -> dict[str, Any]:
    plan = comparison.plan
    kept = (
        "hosts",
        "links",
        "steps",
        "longer_steps",
        "pretraining_steps",
        "tuning_steps",
        "between",
    )
    own = {name: getattr(plan, name) for name in kept}
    return {**own, **asdict(plan.shape), "text": comparison.text}


def _trials(studied: Studied) -> Iterator[dict[str, Any]]:
    for order, loss in studied.tuned.tried:
        rates = {"rate": order.rate, "outer_rate": order.outer_rate}
        chosen = order == studied.tuned.best
        yield {"method": studied.name, **rates, "held_out_loss": loss, "is_chosen": chosen}


def _runs(comparison: Comparison, studied: Studied) -> Iterator[dict[str, Any]]:
    for run in (*studied.trained, *studied.longer):
        kept = ("losses", "up", "down", "told")
        own = {name: getattr(run, name) for name in kept}
        yield {
            "method": studied.name,
            "seed": run.order.seed,
            "at": steps_of(comparison.plan, run.order.steps),
            **own,
        }


def _describe(comparison: Comparison) -> str:
    plan, shape = comparison.plan, comparison.plan.shape
    tokens = plan.steps * plan.hosts * shape.batch * shape.context
    return "\n".join(
        [
            f"A GPT of {shape.layers} layers, {shape.width} wide, on {comparison.text}.",
            f"{plan.hosts} replicas of {shape.batch} windows of {shape.context} characters, "
            f"{plan.steps} steps: {tokens:,} characters with every method, from a checkpoint after "
            f"{plan.pretraining_steps} steps.",
            "Losses and bytes are of whole trainings on emulated hosts without a limit; bytes are "
            "those of the interfaces, headers included.",
            "Times are of steps on shaped links that compute nothing: they sleep for as long as a "
            "step takes one replica that has a core to itself.",
            f"Those that send seldom were also trained for {plan.longer_steps} steps; whichever "
            "training comes to the first one's loss sooner counts.",
            _of_rates(plan.tuning_steps),
        ]
    )


def _of_rates(tuning_steps: int) -> str:
    if not tuning_steps:
        return "Rates are the first ones of each method, and were not tuned."
    return f"Rates are the best of trials of {tuning_steps} steps with a seed of their own."


def _share(outcome: Outcome | None) -> str:
    return _percent(fmean(outcome.loss_shares) - 1) if outcome else "-"


def _percent(share: float) -> str:
    return f"{100 * share:+.2f}%"


_LOSSES = (
    Column[Finding]("method", lambda found: found.in_words, is_text=True),
    Column[Finding]("seeds", lambda found: str(found.whole.seeds)),
    Column[Finding]("rate", lambda found: f"{found.rate:g}"),
    Column[Finding](
        "outer\nrate", lambda found: "-" if found.outer_rate is None else f"{found.outer_rate:g}"
    ),
    Column[Finding]("held-out\nloss", lambda found: f"{found.whole.final_loss:.4f}"),
    Column[Finding]("against\nfirst", lambda found: _share(found.whole)),
    Column[Finding]("up", lambda found: f"{number(found.up, 1e-6)} MB"),
    Column[Finding]("down", lambda found: f"{number(found.down, 1e-6)} MB"),
    Column[Finding]("over\nformula", lambda found: _or(found.over_formula, "-", _percent)),
    Column[Finding]("fewer\nbytes", lambda found: number(found.fewer_bytes)),
    Column[Finding]("longer\ntraining", lambda found: _share(found.longer)),
)


def _time_columns(comparison: Comparison) -> list[Column[Finding]]:
    """For each link the time of a step, and how soon the first method's loss is reached."""
    columns = [_LOSSES[0], Column[Finding]("step\nalone", _alone)]
    for link in comparison.plan.links:
        columns += [
            Column[Finding](f"{link}\nstep", partial(_step, link)),
            Column[Finding]("\nreached", partial(_reached_at, link)),
            Column[Finding]("times\nas soon", partial(_times_as_soon, link)),
        ]
    return columns


def _alone(found: Finding) -> str:
    return f"{1e3 * found.alone_s:.1f} ms"


def _step(link: str, found: Finding) -> str:
    return f"{1e3 * found.reached[link].step_s:.1f} ms"


def _reached_at(link: str, found: Finding) -> str:
    return _or(found.reached[link].target_s, "never", lambda seconds: f"{number(seconds)} s")


def _times_as_soon(link: str, found: Finding) -> str:
    return _or(found.reached[link].speed_up, "never", number)


def _or(value: float | None, otherwise: str, shown: Callable[[float], str]) -> str:
    return otherwise if value is None else shown(value)
