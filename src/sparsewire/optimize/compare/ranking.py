"""Candidates in the order of their predictions, some of them checked by runs; all as a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from sparsewire.optimize.compare.descent import Descent
from sparsewire.optimize.compare.prediction import Prediction
from sparsewire.optimize.compare.report import Compared


@dataclass(frozen=True)
class Ranked:
    """One prediction, and the run that it is checked by, if it was run."""

    place: int
    """By the prediction: 1 is the best."""
    predicted: Prediction
    run: Descent | None

    @property
    def label(self) -> str:
        return self.predicted.candidate.label

    @property
    def share(self) -> float | None:
        """Rounds measured for each that was predicted; None where `seconds` is."""
        if self.run is None or self.seconds is None:
            return None
        return self.run.last.rounds / self.predicted.rounds

    @property
    def seconds(self) -> float | None:
        """Time on the link to the accuracy, for the rounds and bits of the run.

        None where there is no run, or it did not get there.
        """
        if self.run is None or self.run.ending != "reached":
            return None
        return self.run.last.seconds

    def record(self) -> dict[str, Any]:
        """The prediction, and beside it what the run took."""
        predicted = asdict(self.predicted)
        record = {**predicted.pop("candidate"), "predicted": predicted, "measured": None}
        if self.run is not None:
            last = asdict(self.run.last)
            record["measured"] = {"ending": self.run.ending, **last}
        return {"label": self.label, **record}


@dataclass(frozen=True)
class Ranking:
    """All candidates, the best prediction first; `compared` holds the runs."""

    compared: Compared
    ranked: list[Ranked]

    @property
    def accuracy(self) -> float:
        """To which times are predicted and measured."""
        return self.compared.setting.limits.accuracy

    @property
    def predicted(self) -> list[Ranked]:
        """Those that were run, in the predicted order."""
        return [one for one in self.ranked if one.run is not None]

    @property
    def measured(self) -> list[Ranked]:
        """The same in the measured order; what did not reach the accuracy comes last."""
        never = float("inf")
        return sorted(self.predicted, key=lambda c: never if c.seconds is None else c.seconds)

    @property
    def shares(self) -> list[float]:
        """Rounds measured for each that was predicted, of those that reached the accuracy."""
        return [one.share for one in self.predicted if one.share is not None]

    @property
    def pairs_in_order(self) -> tuple[int, int]:
        """How many pairs of those that were run are in the predicted order, and of how many."""
        place = {one.label: i for i, one in enumerate(self.measured)}
        pairs = list(combinations([place[one.label] for one in self.predicted], 2))
        return sum(first < second for first, second in pairs), len(pairs)

    @property
    def best_held(self) -> bool:
        """Whether the best prediction was the fastest of those that were run, and got there."""
        best = self.measured[0]
        return best is self.predicted[0] and best.seconds is not None

    def record(self) -> dict[str, Any]:
        """Everything, as `Compared.record`, and the ranking."""
        in_order, pairs = self.pairs_in_order
        ranking = {
            "predicted": [one.label for one in self.predicted],
            "measured": [one.label for one in self.measured],
            "best_held": self.best_held,
            "held": in_order == pairs,
            "pairs_in_order": in_order,
            "pairs": pairs,
        }
        return {
            **self.compared.record(),
            "accuracy": self.accuracy,
            "ranking": ranking,
            "choices": [one.record() for one in self.ranked],
        }
