"""The demo of weights: the loop once with all weights sent, once with what changed, compared.

What it finds is a table with a column for each transfer, a verdict, and a picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.experiment.report import Report, new_figure, number
from sparsewire.tools.training.reinforcement import loop
from sparsewire.tools.training.reinforcement.loop import Run
from sparsewire.tools.training.reinforcement.order import DELTAS, READERS, TRAINERS, WHOLE, Order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORKERS = TRAINERS + READERS
IN_WORDS = {WHOLE: "all weights, by gloo", DELTAS: "what changed, by sparsewire"}
_SMOOTHED = 16
"""Rewards are averaged over so many batches for the picture."""


@dataclass(frozen=True)
class WeightsDemo:
    """The whole demo: the first run sends all weights, the last one what changed."""

    cluster: Cluster
    order: Order
    runs: list[Run]

    @property
    def speed_up(self) -> float:
        """How many times as fast versions follow each other."""
        return self.runs[0].version_s / self.runs[-1].version_s

    @property
    def fewer_bytes(self) -> float:
        """How many times as many bytes all weights have."""
        return self.runs[0].version_bytes / self.runs[-1].version_bytes

    @property
    def is_exact(self) -> bool:
        """Whether trainers and readers of all runs ended with the same bits."""
        return (
            all(run.is_exact for run in self.runs) and len({run.bits[0] for run in self.runs}) == 1
        )

    def record(self) -> dict[str, Any]:
        """Everything as JSON takes it."""
        setting = {**asdict(self.order), "link": self.cluster.link, "workers": self.cluster.ranks}
        dropped = ("start", "transfer", "timeout_s")
        return {
            "setting": {name: value for name, value in setting.items() if name not in dropped},
            "transfers": [_record(run) for run in self.runs],
            "against_whole": {
                "speed_up": self.speed_up,
                "fewer_bytes": self.fewer_bytes,
                "is_exact": self.is_exact,
            },
        }


def _record(run: Run) -> dict[str, Any]:
    figures = (
        "version_s",
        "version_bytes",
        "pause_s",
        "idle_s",
        "changed_share",
        "first_reward",
        "last_reward",
        "elapsed_s",
    )
    return {**asdict(run), **{name: getattr(run, name) for name in figures}}


def run_demo(cluster: Cluster, versions: int, seed: int, output: Path, move: Move) -> WeightsDemo:
    """Pretrain the policy, and run the loop with each transfer; logs are left in the output folder.

    Raises LabError where the lab fails, WorkerFailed where a worker does.
    """
    order = Order(WHOLE, str(output / "pretrained.npy"), versions, seed)
    _pretrain(order, move)
    runs = [
        loop.run(order.by(transfer), cluster, output / "logs" / transfer, IN_WORDS[transfer], move)
        for transfer in (WHOLE, DELTAS)
    ]
    return WeightsDemo(cluster, order, runs)


def _pretrain(order: Order, move: Move) -> None:
    import torch

    from sparsewire.tools.training.reinforcement import pretraining
    from sparsewire.tools.training.reinforcement.worker import new_policy

    steps, name = order.pretraining_steps, "pretraining"
    move(name, 0, steps, "the policy imitates demonstrations, half of which are wrong")
    # Threads that wait for each other by spinning take long on a busy machine.
    torch.set_num_threads(1)
    torch.manual_seed(order.seed)
    policy = new_policy(order)
    pretraining.pretrain(
        policy, steps, order.seed, lambda step, loss: move(name, step, steps, f"loss {loss:.3f}")
    )
    pretraining.save(policy, Path(order.start))


def demo_report(demo: WeightsDemo) -> Report:
    """Everything that the demo shows and leaves."""
    return Report(
        [_table(demo), Text(verdict(demo), "bold")], demo.record(), lambda: _picture(demo)
    )


def verdict(demo: WeightsDemo) -> str:
    """Say in one sentence how the transfers compare."""
    same = "the same bits" if demo.is_exact else "DIFFERENT bits"
    return (
        f"Sending what changed takes 1/{demo.fewer_bytes:.0f} of the bytes, and versions come "
        f"{demo.speed_up:.1f} times as fast; trainers and readers of both runs end with {same}."
    )


def _table(demo: WeightsDemo) -> Table:
    link, millions = demo.cluster.link, demo.runs[0].parameters / 1e6
    where = f"links of {link}" if link else "loopback"
    table = Table(
        title=f"{TRAINERS} trainers, {READERS} readers, {where}, {millions:.1f} million parameters"
    )
    table.add_column("")
    for run in demo.runs:
        table.add_column(IN_WORDS[run.transfer], justify="right")
    for label, cell in _ROWS.items():
        table.add_row(label, *(cell(run) for run in demo.runs))
    return table


def _changed(run: Run) -> str:
    return "-" if run.changed_share is None else f"{run.changed_share:.2%}"


_ROWS: dict[str, Callable[[Run], str]] = {
    "time for a version": lambda run: f"{run.version_s:.2f} s",
    "weights to each reader": lambda run: f"{number(run.version_bytes, 1e-3)} kB",
    "elements that changed": _changed,
    "a reader waits for weights": lambda run: f"{number(run.idle_s, 1e3)} ms",
    "a reader stops to apply them": lambda run: f"{number(run.pause_s, 1e3)} ms",
    "reward, first batches": lambda run: f"{run.first_reward:.3f}",
    "reward, last batches": lambda run: f"{run.last_reward:.3f}",
    "time for all versions": lambda run: f"{run.elapsed_s:.0f} s",
}


def _picture(demo: WeightsDemo) -> Figure:
    """Rewards over time, bytes of each version, and how long each one keeps a reader."""
    figure = new_figure(13, 4)
    rewards, sizes, pauses = figure.subplots(1, 3)
    for run in demo.runs:
        label = IN_WORDS[run.transfer]
        times, means = _smoothed(run)
        rewards.plot(times, means, label=label)
        numbers = [row["version"] for row in run.applied]
        sizes.plot(numbers, [row["nbytes"] / 1e6 for row in run.applied], ".", label=label)
        lost = [(row["waited_s"] + row["pause_s"]) * 1e3 for row in run.applied]
        pauses.plot(numbers, lost, ".", label=label)
    _label(rewards, "time [s]", "reward, mean of the last batches", "Reward over time", "linear")
    _label(sizes, "version", "MB to each reader", "Bytes of a version", "log")
    # They stay within one power of ten or two: plain numbers are easier to read there.
    sizes.yaxis.set_major_formatter("{x:g}")
    sizes.yaxis.set_minor_formatter("{x:g}")
    _label(pauses, "version", "wait and pause of a reader [ms]", "Time without sampling", "linear")
    link = demo.cluster.link
    where = f"at {link}" if link else "on loopback"
    figure.suptitle(f"A policy of {demo.runs[0].parameters / 1e6:.1f} million weights, {where}")
    return figure


def _smoothed(run: Run) -> tuple[list[float], list[float]]:
    """Times of batches, and means of rewards up to there."""
    rewards = [row["reward"] for row in run.sampled]
    windows = [rewards[max(0, end - _SMOOTHED) : end] for end in range(1, len(rewards) + 1)]
    return [row["at"] for row in run.sampled], [sum(own) / len(own) for own in windows]


def _label(axes: Axes, x: str, y: str, title: str, scale: str) -> None:
    axes.set(xlabel=x, ylabel=y, title=title, yscale=scale)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
