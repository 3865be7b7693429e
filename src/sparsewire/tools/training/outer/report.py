"""What `sparsewire bench outer` shows: losses beside bytes, times at each link, and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sparsewire.tools.experiment.report import Column, Report, new_figure, number, table
from sparsewire.tools.training.outer.comparison import (
    Comparison,
    Finding,
    Studied,
    findings,
    mean_losses,
    steps_of,
)
from sparsewire.tools.training.outer.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    times = table(_time_columns(comparison), found, "Times, with passes that are slept")
    return Report([_describe(comparison), losses, times], record, lambda: curves(comparison))


def _setting(comparison: Comparison) -> dict[str, Any]:
    plan = comparison.plan
    kept = ("hosts", "links", "steps", "pretraining_steps", "tuning_steps", "between")
    own = {name: getattr(plan, name) for name in kept}
    return {**own, **asdict(plan.shape), "text": comparison.text, "pass_s": comparison.pass_s}


def _trials(studied: Studied) -> Iterator[dict[str, Any]]:
    for order, loss in studied.tuned.tried:
        rates = {"rate": order.rate, "outer_rate": order.outer_rate}
        chosen = order == studied.tuned.best
        yield {"method": studied.name, **rates, "held_out_loss": loss, "is_chosen": chosen}


def _runs(comparison: Comparison, studied: Studied) -> Iterator[dict[str, Any]]:
    for run in studied.trained:
        kept = ("losses", "up", "down", "told")
        own = {name: getattr(run, name) for name in kept}
        yield {
            "method": studied.name,
            "seed": run.order.seed,
            "at": steps_of(comparison.plan),
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
            f"Times are of steps on shaped links, in which a pass sleeps for "
            f"{1e3 * comparison.pass_s:.1f} ms: what it takes one replica with a core to itself.",
            f"Rates are the best of trials of {plan.tuning_steps} steps with a seed of their own.",
        ]
    )


def _share(finding: Finding) -> str:
    return f"{100 * (fmean(finding.loss_shares) - 1):+.2f}%"


_LOSSES = (
    Column[Finding]("method", lambda found: found.in_words, is_text=True),
    Column[Finding]("seeds", lambda found: str(found.seeds)),
    Column[Finding]("rate", lambda found: f"{found.rate:g}"),
    Column[Finding](
        "outer\nrate", lambda found: "-" if found.outer_rate is None else f"{found.outer_rate:g}"
    ),
    Column[Finding]("held-out\nloss", lambda found: f"{found.final_loss:.4f}"),
    Column[Finding]("against\nfirst", _share),
    Column[Finding]("up", lambda found: f"{number(found.up, 1e-6)} MB"),
    Column[Finding]("down", lambda found: f"{number(found.down, 1e-6)} MB"),
    Column[Finding]("fewer\nbytes", lambda found: number(found.fewer_bytes)),
    Column[Finding](
        "first's loss\nat step", lambda found: _or_never(found.target_step, lambda s: f"{s:.0f}")
    ),
)


def _time_columns(comparison: Comparison) -> list[Column[Finding]]:
    """For each link the time of a step, and how soon the first method's loss is reached."""
    columns = [_LOSSES[0]]
    for link in comparison.plan.links:
        columns += [
            Column[Finding](f"{link}\nstep", partial(_step, link)),
            Column[Finding]("\nreached", partial(_reached_at, link)),
            Column[Finding]("times\nas soon", partial(_times_as_soon, link)),
        ]
    return columns


def _step(link: str, found: Finding) -> str:
    return f"{1e3 * found.reached[link].step_s:.1f} ms"


def _reached_at(link: str, found: Finding) -> str:
    return _or_never(found.reached[link].target_s, lambda seconds: f"{number(seconds)} s")


def _times_as_soon(link: str, found: Finding) -> str:
    return _or_never(found.reached[link].speed_up, number)


def _or_never(value: float | None, shown: Any) -> str:
    return "never" if value is None else str(shown(value))


def curves(comparison: Comparison) -> Figure:
    """Mean losses of each method against bytes, and against time at each link."""
    links = list(comparison.plan.links)
    panels = 1 + len(links)
    rows = -(-panels // 2)
    figure = new_figure(11, 4 * rows)
    axes = figure.subplots(rows, 2, squeeze=False, sharey=True).flatten()
    for studied in comparison.studied:
        _draw(comparison, studied, axes)
    _label(axes[0], "bytes sent by a replica [MB]", "Held-out loss against bytes on the wire")
    for panel, link in zip(axes[1:], links, strict=False):
        _label(panel, "time [s]", f"Held-out loss against time at {link}")
    for panel in axes[panels:]:
        panel.set_axis_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw(comparison: Comparison, studied: Studied, axes: Any) -> None:
    steps, losses = steps_of(comparison.plan), mean_losses(studied)
    up = [fmean(each) for each in zip(*(run.up for run in studied.trained), strict=True)]
    style = {"label": METHODS[studied.name].in_words, "linewidth": 1.2}
    # Before the first step nothing is sent, and a logarithm has no place for it.
    axes[0].plot([sent / 1e6 for sent in up[1:]], losses[1:], **style)
    for panel, link in zip(axes[1:], comparison.plan.links, strict=False):
        panel.plot([step * studied.step_s[link] for step in steps[1:]], losses[1:], **style)


def _label(axes: Axes, label: str, title: str) -> None:
    axes.set(xlabel=label, ylabel="held-out loss", title=title, xscale="log")
    axes.title.set_fontsize("medium")
    axes.grid(which="both", alpha=0.2)
