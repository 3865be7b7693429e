"""The demo: one language model, trained over one backend after the other under equal conditions.

What it finds is a table with a column for each backend, a verdict, and a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.experiment.report import Report, new_figure
from sparsewire.tools.training.corpus import Corpus, save_corpus
from sparsewire.tools.training.run import Trained, train
from sparsewire.tools.training.trial import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VOCABULARY = 50_000
WIDTH = 256
ALONE_STEPS = 6
SAME_LOSS = 1e-4
"""Largest relative difference of losses that differ by the order of additions only."""
_SOURCES = {"interface": "", "sparsewire": " (own count)", "computed": " (computed)"}


@dataclass(frozen=True)
class Demo:
    """The whole demo; its runs average in full, each over a backend."""

    cluster: Cluster
    corpus: Corpus
    steps: int
    seed: int
    runs: list[Trained]

    @property
    def speed_up(self) -> float:
        """How many times as fast the last backend trains as the first."""
        return self.runs[0].mean_step_s / self.runs[-1].mean_step_s

    @property
    def loss_difference(self) -> float:
        """The largest relative difference between any two runs' losses at the same step."""
        by_step: Iterable[tuple[float, ...]] = zip(*(run.losses for run in self.runs), strict=True)
        return max(max(losses) / min(losses) - 1 for losses in by_step)

    def record(self) -> dict[str, Any]:
        """Everything as JSON takes it."""
        return {
            "setting": {
                "workers": self.cluster.ranks,
                "steps": self.steps,
                "seed": self.seed,
                "link": self.cluster.link,
                "corpus": self.corpus.source,
                "tokens": len(self.corpus.tokens),
                "vocabulary": self.corpus.vocabulary,
            },
            "runs": [_record(run) for run in self.runs],
            "comparison": {"speed_up": self.speed_up, "loss_difference": self.loss_difference},
        }


def _record(run: Trained) -> dict[str, Any]:
    return {
        "backend": run.averaging,
        "losses": run.losses,
        "wall_s": list(accumulate(run.step_s)),
        "step_s": run.mean_step_s,
        "alone_s": run.alone_s,
        "bytes_per_step": run.sent_per_step,
        "bytes_source": run.counted_by,
        "parameters": run.parameters,
        "held_out_before": run.held_out[0][1],
        "held_out_after": run.held_out_loss,
        "density_rank": run.density_rank,
        "density_sum": run.density_sum,
    }


def run_demo(
    backends: Iterable[str],
    cluster: Cluster,
    text: Path | None,
    steps: int,
    seed: int,
    output: Path,
    move: Move,
) -> Demo:
    """Train once over each backend; leave the tokens and the workers' logs in the output folder.

    Raises ExperimentError where the text cannot be read, LabError where the lab fails, WorkerFailed
    where a worker does.
    """
    tokens = output / "tokens.npy"
    corpus = save_corpus(text, VOCABULARY, cluster.ranks, tokens)
    trial = Trial(
        task="lstm",
        averaging="",
        steps=steps,
        seed=seed,
        evaluations=1,
        alone_steps=ALONE_STEPS,
        width=WIDTH,
        tokens=str(tokens),
    )
    runs = [
        train(replace(trial, averaging=backend), cluster, output / "logs" / backend, backend, move)
        for backend in backends
    ]
    return Demo(cluster, corpus, steps, seed, runs)


def demo_report(demo: Demo) -> Report:
    """Everything that the demo shows and leaves."""
    shown: list[RenderableType] = [f"Text: {demo.corpus}.", _table(demo), _densities(demo.runs[-1])]
    if len(demo.runs) > 1:
        shown.append(Text(verdict(demo), "bold"))
    return Report(shown, demo.record(), lambda: _picture(demo))


def verdict(demo: Demo) -> str:
    """Say in one sentence how the last of several backends compares with the first."""
    first, last = demo.runs[0].averaging, demo.runs[-1].averaging
    same = "equal" if demo.loss_difference <= SAME_LOSS else "NOT equal"
    return (
        f"{last} trains {demo.speed_up:.1f} times as fast as {first}; their losses are {same} "
        f"(largest relative difference {demo.loss_difference:.0e})."
    )


def _table(demo: Demo) -> Table:
    link, millions = demo.cluster.link, demo.runs[0].parameters / 1e6
    where = f"links of {link}" if link else "loopback"
    table = Table(title=f"{demo.cluster.ranks} workers, {where}, {millions:.1f} million parameters")
    table.add_column("")
    for run in demo.runs:
        table.add_column(run.averaging, justify="right")
    for label, cell in _ROWS.items():
        table.add_row(label, *(cell(run) for run in demo.runs))
    return table


def _densities(run: Trained) -> str:
    """Say how much of a gradient is not zero."""
    own, total = run.density_rank or run.density_sum, run.density_sum
    return (
        f"Not zero in a gradient: {own['element']:.1%} of the elements, {own['block']:.1%} of "
        f"the 256-element blocks; after summing over all workers "
        f"{total['element']:.1%} and {total['block']:.1%}."
    )


_ROWS: dict[str, Callable[[Trained], str]] = {
    "steps per second": lambda run: f"{1 / run.mean_step_s:.2f}",
    "time per step": lambda run: f"{run.mean_step_s * 1e3:.0f} ms",
    "  of it without communication": lambda run: f"{run.alone_s * 1e3:.0f} ms",
    "sent per step and worker": lambda run: (
        f"{run.sent_per_step / 1e6:.1f} MB{_SOURCES[run.counted_by]}"
    ),
    "training loss, first step": lambda run: f"{run.losses[0]:.5f}",
    "training loss, last step": lambda run: f"{run.losses[-1]:.5f}",
    "held-out loss, before": lambda run: f"{run.held_out[0][1]:.5f}",
    "held-out loss, after": lambda run: f"{run.held_out_loss:.5f}",
}


def _picture(demo: Demo) -> Figure:
    """Loss over time for every backend, and where a step's time goes."""
    figure = new_figure(11, 4.2)
    losses, times = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_losses(losses, demo)
    _draw_step_times(times, demo)
    link = demo.cluster.link
    where = f"at {link}" if link else "on loopback"
    figure.suptitle(f"An LSTM language model, {demo.cluster.ranks} workers {where}")
    return figure


def _draw_losses(axes: Axes, demo: Demo) -> None:
    for run in demo.runs:
        axes.plot(list(accumulate(run.step_s)), run.losses, marker=".", label=run.in_words)
    axes.set(xlabel="time [s]", ylabel="training loss", title="Loss over time")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()


def _draw_step_times(axes: Axes, demo: Demo) -> None:
    names = [run.in_words for run in demo.runs]
    alone = [min(run.alone_s, run.mean_step_s) * 1e3 for run in demo.runs]
    total = [run.mean_step_s * 1e3 for run in demo.runs]
    communication = [both - own for both, own in zip(total, alone, strict=True)]
    axes.bar(names, alone, width=0.5, label="computation")
    bars = axes.bar(names, communication, width=0.5, bottom=alone, label="communication")
    axes.bar_label(bars, [f"{both:.0f} ms" for both in total])
    axes.set(ylabel="time per step [ms]", title="Where a step's time goes")
    axes.margins(y=0.12)
    axes.legend()
