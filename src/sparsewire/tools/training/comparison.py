"""Compares averagings: every training in full on loopback, and some steps on emulated links.

How each did beside the first one: numbers, a table for each task, and a picture.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.experiment.report import Column, Report, new_figure, table
from sparsewire.tools.training.corpus import save_corpus
from sparsewire.tools.training.run import Trained, train
from sparsewire.tools.training.trial import TASKS, Averaging, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WARMUP_SHARE = 0.02
VOCABULARY = 16_000
POINTS = 40
"""Training losses are averaged over so many parts of a training, because batches differ."""
_PANELS = (("by step", "linear"), ("by bytes sent", "log"), ("by time", "log"))


@dataclass(frozen=True)
class Plan:
    """The trainings to run. The others are compared with the first averaging.

    `steps` of None are those of the task, and a `warmup` of None is 2% of them. Losses do not
    depend on the links, so whole trainings run on loopback; with a `link`, `timed_steps` of each
    also run on emulated hosts.
    """

    tasks: list[str]
    averagings: list[Averaging]
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
    ValueError for a link's speed, WorkerFailed where a worker does.
    """
    emulated = _emulated(plan) if plan.link else None
    with tempfile.TemporaryDirectory(prefix="sparsewire-training-") as name:
        folder, corpus = Path(name), None
        if "lstm" in plan.tasks:
            corpus = str(save_corpus(plan.text, VOCABULARY, plan.ranks, folder / "tokens.npy"))
        trained = list(_run_all(_whole(plan, folder), Cluster(plan.ranks), folder, move))
        timed = []
        if emulated:
            timed = list(_run_all(_timed(plan, folder), emulated, folder, move))
    return Comparison(plan.ranks, plan.link, corpus, trained, timed)


def _emulated(plan: Plan) -> Cluster:
    """The hosts for the timed steps, tried before the long trainings."""
    cluster = Cluster(plan.ranks, emulated=True, link=plan.link)
    with cluster.open():
        return cluster


def _run_all(
    trials: Iterator[Trial], cluster: Cluster, folder: Path, move: Move
) -> Iterator[Trained]:
    for trial in trials:
        name = f"{trial.task}, {trial.averaging}, seed {trial.seed}, on {cluster.place}"
        yield train(trial, cluster, folder / "logs", name, move)


def _whole(plan: Plan, folder: Path) -> Iterator[Trial]:
    for task in plan.tasks:
        steps = plan.steps or TASKS[task].steps
        warmup = round(WARMUP_SHARE * steps) if plan.warmup is None else plan.warmup
        for seed in range(plan.seeds):
            for averaging in plan.averagings:
                trial = Trial(
                    task, str(averaging), steps, seed, schedule_steps=steps, warmup=warmup
                )
                yield replace(trial, tokens=str(folder / "tokens.npy"))


def _timed(plan: Plan, folder: Path) -> Iterator[Trial]:
    """Some steps of each; those that send everything are no measure, so there is no warm-up."""
    once = replace(plan, seeds=1, warmup=0)
    for trial in _whole(once, folder):
        whole = max(trial.steps, plan.timed_steps)
        yield replace(trial, steps=plan.timed_steps, schedule_steps=whole)


@dataclass(frozen=True)
class Finding:
    """An averaging on a task: means over the seeds, and the same over what the first one has.

    `seed_ratios` are the ratios of final losses of each seed, `timed_sent` the bytes of a step on
    the links, where there are any, as counted there.
    """

    task: str
    averaging: str
    final_loss: float
    loss_ratio: float
    held_out_loss: float
    held_out_ratio: float
    sent: float
    counted_by: str
    fewer_bytes: float
    step_s: float
    speed_up: float
    timed_sent: float | None
    seed_ratios: list[float]


def findings(comparison: Comparison) -> Iterator[Finding]:
    """A finding for each task and averaging."""
    for task in _tasks(comparison):
        of_task = [run for run in comparison.trained if run.task == task]
        timed = [run for run in comparison.timed if run.task == task]
        for averaging in dict.fromkeys(run.averaging for run in of_task):
            yield _finding(averaging, of_task, timed)


def _tasks(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(run.task for run in comparison.trained))


def _finding(averaging: str, trained: Sequence[Trained], timed: Sequence[Trained]) -> Finding:
    first, on_links = trained[0].averaging, timed or trained

    def mean(figure: str, of: str = averaging, runs: Sequence[Trained] = trained) -> float:
        return fmean(getattr(run, figure) for run in runs if run.averaging == of)

    def step_s(of: str) -> float:
        return median(run.median_step_s for run in on_links if run.averaging == of)

    return Finding(
        task=trained[0].task,
        averaging=averaging,
        final_loss=mean("final_loss"),
        loss_ratio=mean("final_loss") / mean("final_loss", first),
        held_out_loss=mean("held_out_loss"),
        held_out_ratio=mean("held_out_loss") / mean("held_out_loss", first),
        sent=mean("sent_per_step"),
        counted_by=next(run.counted_by for run in trained if run.averaging == averaging),
        fewer_bytes=mean("sent_per_step", first) / mean("sent_per_step"),
        step_s=step_s(averaging),
        speed_up=step_s(first) / step_s(averaging),
        timed_sent=mean("sent_per_step", runs=timed) if timed else None,
        seed_ratios=list(_seed_ratios(trained, averaging, first)),
    )


def _seed_ratios(trained: Sequence[Trained], averaging: str, first: str) -> Iterator[float]:
    finals = {(run.averaging, run.seed): run.final_loss for run in trained}
    for (name, seed), loss in finals.items():
        if name == averaging:
            yield loss / finals[first, seed]


def comparison_report(comparison: Comparison) -> Report:
    """A table for each task, all numbers, and the losses as a picture."""
    found = list(findings(comparison))
    record = {
        "findings": [recorded(finding) for finding in found],
        **asdict(comparison),
        "trained": [recorded(run) for run in comparison.trained],
        "timed": [recorded(run) for run in comparison.timed],
    }
    tables = (_table(comparison, found, task) for task in _tasks(comparison))
    seconds = {(finding.task, finding.averaging): finding.step_s for finding in found}
    return Report([_describe(comparison), *tables], record, lambda: losses(comparison, seconds))


def recorded(entry: Finding | Trained) -> dict[str, Any]:
    """A dictionary for JSON, which names the averaging as the option does."""
    return {
        "method" if name == "averaging" else name: value for name, value in asdict(entry).items()
    }


def _describe(comparison: Comparison) -> str:
    """Say where the numbers come from."""
    link = comparison.link
    where = "loopback" if link is None else f"emulated hosts with links of {link}"
    lines = [
        f"{comparison.ranks} ranks; losses of whole trainings, median times of steps on {where}.",
        "Training losses are means over the last 5% of the steps. Bytes are means over a whole "
        "training: sparsewire's by its own count, others' those that a ring has to send.",
    ]
    if warmups := sorted({run.warmup for run in comparison.trained if run.warmup}):
        steps = " or ".join(map(str, warmups))
        lines.append(f"Hooks send everything in their first {steps} steps, which is counted.")
    return "\n".join(lines + ([f"Text: {comparison.corpus}."] if comparison.corpus else []))


def _table(comparison: Comparison, found: Sequence[Finding], task: str) -> Table:
    run = next(run for run in comparison.trained if run.task == task)
    title = f"{TASKS[task].title}, {run.parameters:,} parameters, {len(run.losses)} steps"
    return table(_COLUMNS, [finding for finding in found if finding.task == task], title)


_COLUMNS = (
    Column[Finding]("method", lambda found: found.averaging, is_text=True),
    Column[Finding]("training\nloss", lambda found: f"{found.final_loss:.4f}"),
    Column[Finding]("over\nfirst", lambda found: f"{found.loss_ratio:.4f}"),
    Column[Finding]("held-out\nloss", lambda found: f"{found.held_out_loss:.4f}"),
    Column[Finding]("over\nfirst", lambda found: f"{found.held_out_ratio:.4f}"),
    Column[Finding]("sent per step\nand rank", lambda found: f"{found.sent / 1e6:.3f} MB"),
    Column[Finding]("fewer\nbytes", lambda found: f"{found.fewer_bytes:.1f}"),
    Column[Finding]("time of\na step", lambda found: f"{found.step_s * 1e3:.0f} ms"),
    Column[Finding]("times\nas fast", lambda found: f"{found.speed_up:.1f}"),
)


def losses(comparison: Comparison, step_s: Mapping[tuple[str, str], float]) -> Figure:
    """The trainings of the first seed; `step_s` is the time of a step by task and averaging."""
    tasks = _tasks(comparison)
    figure = new_figure(12, 3.7 * len(tasks))
    rows = figure.subplots(len(tasks), len(_PANELS), squeeze=False, sharey="row")
    for row, task in zip(rows, tasks, strict=True):
        runs = [run for run in comparison.trained if run.task == task and run.seed == 0]
        for run, label in zip(runs, _labels(runs), strict=True):
            _draw(row, run, step_s[task, run.averaging], label)
        _label(row, task, comparison.link)
    return figure


def _labels(runs: list[Trained]) -> list[str]:
    """Labels in words, with the options if the words alone would be equal."""
    words = [run.in_words for run in runs]
    return [
        label if words.count(label) == 1 else f"{label} ({run.averaging})"
        for run, label in zip(runs, words, strict=True)
    ]


def _draw(row: list[Axes], run: Trained, step_s: float, label: str) -> None:
    """Draw one training into all panels of its task."""
    part = max(1, len(run.losses) // POINTS)
    ends = range(part, len(run.losses) + 1, part)
    means = [sum(run.losses[end - part : end]) / part for end in ends]
    sent = list(accumulate(run.sent))
    row[0].plot(list(ends), means, label=label)
    row[1].plot([sent[end - 1] / 1e6 for end in ends], means)
    row[2].plot([end * step_s for end in ends], means)


def _label(row: list[Axes], task: str, link: str | None) -> None:
    where = "on loopback" if link is None else f"at {link}"
    labels = ("step", "MB sent by a rank", f"time [s], at the median time of a step {where}")
    for axes, label, (title, scale) in zip(row, labels, _PANELS, strict=True):
        axes.set(xlabel=label, title=f"{TASKS[task].title}, {title}", xscale=scale, yscale="log")
        axes.title.set_fontsize("medium")
        axes.grid(which="both", alpha=0.2)
    # Losses stay within one power of ten or two: plain numbers are easier to read there.
    row[0].yaxis.set_major_formatter("{x:g}")
    row[0].yaxis.set_minor_formatter("{x:g}")
    row[0].set_ylabel("training loss")
    row[0].legend(fontsize="small")
