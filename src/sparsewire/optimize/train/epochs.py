"""What a training tells while it runs: the setting, and how good the model is after each epoch."""

from __future__ import annotations

from dataclasses import dataclass

_METHOD_NAMES = {
    "sgd": "SGD over sparse all_reduce",
    "bcd": "block coordinate descent over sparse all_gather",
}


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
