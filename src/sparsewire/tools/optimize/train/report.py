"""The report of a training: setting and epochs, as text, table, record and picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sparsewire.tools.experiment.report import Column, Report, new_figure, table
from sparsewire.tools.optimize.train.training import Training

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROWS_SHOWN = 10
_METHOD_NAMES = {
    "sgd": "SGD over sparse all_reduce",
    "bcd": "block coordinate descent over sparse all_gather",
}


@dataclass(frozen=True)
class Setting:
    """The setting of a training, with all defaults filled in."""

    data: str
    model: str
    method: str
    ranks: int
    rows: int
    """Training rows of all ranks."""
    test_rows: int
    features: int
    row_nonzeros: float
    """Mean number of features that a row has."""
    positive: list[float]
    """The classes of the file that became +1."""
    l2: float
    step_size: float | None
    steps: int
    """Steps in an epoch, each with one collective."""
    dense_bytes: float
    """Bytes that a rank would send in an epoch without sparsity (computed)."""

    def __str__(self) -> str:
        step = "" if self.step_size is None else f", first step {self.step_size:.3g}"
        return (
            f"{self.title}\n"
            f"{self.rows:,} rows and {self.test_rows:,} held out, {self.features:,} features, "
            f"{self.row_nonzeros:.1f} of them in a row\n"
            f"l2 {self.l2:.3g}{step}, {self.steps:,} steps an epoch"
        )

    @property
    def title(self) -> str:
        """One line for tables and pictures."""
        ranks = f"{self.ranks} rank" + "s" * (self.ranks > 1)
        return f"{self.data}: {self.model}, {_METHOD_NAMES[self.method]}, {ranks}"


@dataclass(frozen=True)
class Epoch:
    """The state after `epoch` epochs; seconds and bytes count from the start, scoring left out."""

    epoch: int
    objective: float
    train_accuracy: float
    test_accuracy: float | None
    seconds: float
    communication_s: float
    """Mean over ranks, of the time in collectives."""
    bytes_sent: float
    """Mean over ranks."""


def training_report(task: Training, setting: Setting, epochs: Sequence[Epoch]) -> Report:
    """The report of a whole training; its first epoch is number 0, the start."""
    record = {
        "request": asdict(task),
        "setting": asdict(setting),
        "epochs": [asdict(epoch) for epoch in epochs],
    }
    shown = (str(setting), table(_columns(setting.dense_bytes), _shown(epochs)))
    return Report(shown, record, lambda: by_epoch_and_time(setting.title, epochs))


def _shown(epochs: Sequence[Epoch]) -> list[Epoch]:
    """About ten epochs, the first and the last among them."""
    every = -(-(len(epochs) - 1) // _ROWS_SHOWN)
    return [e for e in epochs[:-1] if e.epoch % every == 0] + [epochs[-1]]


def _columns(dense_bytes: float) -> Sequence[Column[Epoch]]:
    """Times and bytes from the start."""
    return (
        Column("epoch", lambda e: str(e.epoch)),
        Column("objective", lambda e: f"{e.objective:.6f}"),
        Column("train\naccuracy", lambda e: f"{e.train_accuracy:.2%}"),
        Column(
            "test\naccuracy", lambda e: "-" if e.test_accuracy is None else f"{e.test_accuracy:.2%}"
        ),
        Column("time\ns", lambda e: f"{e.seconds:.2f}"),
        Column("communication\ns", lambda e: f"{e.communication_s:.2f}"),
        Column("sent per rank\nMB", lambda e: f"{e.bytes_sent / 1e6:.2f}"),
        Column("if dense\nMB", lambda e: f"{e.epoch * dense_bytes / 1e6:.1f}"),
    )


def by_epoch_and_time(title: str, epochs: Sequence[Epoch]) -> Figure:
    """The objective above, the accuracies below."""
    objective = {"objective": [epoch.objective for epoch in epochs]}
    accuracy = {"training": [100 * epoch.train_accuracy for epoch in epochs]}
    test = [100 * e.test_accuracy for e in epochs if e.test_accuracy is not None]
    if test:
        accuracy["held out"] = test
    figure = new_figure(10, 6)
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, x in enumerate(
        ([float(e.epoch) for e in epochs], [e.communication_s for e in epochs])
    ):
        _draw(panels[0, column], x, objective)
        _draw(panels[1, column], x, accuracy)
    sent = epochs[-1].bytes_sent / 1e6
    panels[0, 0].set_ylabel("objective")
    panels[1, 0].set(ylabel="accuracy [%]", xlabel="epochs")
    panels[1, 1].set_xlabel(
        "communication time [s]" + (f", {sent:.3g} MB sent per rank" if sent else "")
    )
    panels[1, 1].legend(loc="best")
    figure.suptitle(title)
    return figure


def _draw(axes: Axes, x: list[float], lines: dict[str, list[float]]) -> None:
    for label, y in lines.items():
        axes.plot(x, y, marker=".", label=label)
    # The start only guesses. Shown in full, it would leave no room for the differences that count.
    shown = [value for y in lines.values() for value in y[1:]]
    margin = 0.08 * (max(shown) - min(shown)) or 0.01 * max(shown)
    axes.set_ylim(min(shown) - margin, max(shown) + margin)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
