"""What came of an optimisation: the setting, every epoch, and both as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparsewire.measure.conditions import conditions
from sparsewire.optimize.train.request import Request


@dataclass(frozen=True)
class Setting:
    """What was optimised, after all defaults are known."""

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
    """What a rank would send in an epoch without sparsity (computed)."""


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


Item = Setting | Epoch


@dataclass(frozen=True)
class Report:
    """A whole run; its first epoch is number 0, the start."""

    request: Request
    setting: Setting
    epochs: list[Epoch]

    @classmethod
    def from_items(cls, request: Request, items: list[Item]) -> Report:
        """Order what a run told."""
        (setting,) = (item for item in items if isinstance(item, Setting))
        return cls(request, setting, [item for item in items if isinstance(item, Epoch)])

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]

    def save(self, file: Path) -> None:
        """Write everything as JSON; times in seconds, sizes in bytes."""
        record = {
            "request": asdict(self.request),
            "conditions": conditions(),
            "setting": asdict(self.setting),
            "epochs": [asdict(epoch) for epoch in self.epochs],
        }
        file.write_text(json.dumps(record, indent=1) + "\n")


def to_json(item: Item) -> str:
    """One line, from whose fields `from_fields` makes the same item."""
    return json.dumps({"item": type(item).__name__, **asdict(item)})


def from_fields(fields: dict[str, Any]) -> Item:
    """Take back what `to_json` wrote."""
    kind: type[Item] = {"Setting": Setting, "Epoch": Epoch}[fields["item"]]
    return kind(**{name: value for name, value in fields.items() if name != "item"})
