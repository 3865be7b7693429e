"""What came of a training, as text, table, record and picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sparsewire.experiment.report import Column, Report, table
from sparsewire.optimize.train.epochs import Epoch, Setting
from sparsewire.optimize.train.plot import by_epoch_and_time
from sparsewire.optimize.train.training import Training

_ROWS_SHOWN = 10


def training_report(task: Training, setting: Setting, epochs: Sequence[Epoch]) -> Report:
    """Of a whole training; its first epoch is number 0, the start."""
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
