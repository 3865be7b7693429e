"""What the ranks of a run are told, as JSON: the setting of all trainings, and each training."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from sparsewire.tools.training.outer.gpt import Shape

HEADS = 4
"""Of each layer, whatever its width."""


@dataclass(frozen=True)
class Order:
    """One training: the method by its name, its rates, and how far it goes.

    `schedule_steps` is the length of the training that the rates are for, of which `steps` are run.
    With `compute_s` nothing is learned: a pass sleeps for so long, and gives recorded gradients.
    """

    method: str
    rate: float
    outer_rate: float | None
    seed: int
    steps: int
    schedule_steps: int
    compute_s: float | None = None


@dataclass(frozen=True)
class Setting:
    """What all trainings of a run share. Held-out losses are taken every so many steps."""

    characters: str
    """The file of the text,"""
    start: str
    """and that of the parameters to start from."""
    shape: Shape
    between: int
    timeout_s: float = 120.0

    def argument(self, orders: list[Order]) -> str:
        """The setting and what to do in it, for a worker's command line."""
        return json.dumps({**asdict(self), "orders": [asdict(order) for order in orders]})


def read(argument: str) -> tuple[Setting, list[Order]]:
    """What `Setting.argument` has made."""
    told: dict[str, Any] = json.loads(argument)
    orders = [Order(**order) for order in told.pop("orders")]
    return Setting(**{**told, "shape": Shape(**told["shape"])}), orders
