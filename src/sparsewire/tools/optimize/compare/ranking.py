"""Candidates by prediction, some of them checked by runs: as text, table and record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from rich.console import RenderableType

from sparsewire.tools.experiment.report import Column, table
from sparsewire.tools.measure.sizes import seconds_text, traffic_text
from sparsewire.tools.optimize.compare.descent import Descent
from sparsewire.tools.optimize.compare.prediction import Prediction
from sparsewire.tools.optimize.compare.report import Compared

_ROWS_SHOWN = 12
_EVEN = 1.25
"""Shares that differ by no more say nothing about one method against another."""


@dataclass(frozen=True)
class Ranked:
    """One prediction, and the run that checks it, if there is one."""

    place: int
    """The place by the prediction: 1 is the best."""
    predicted: Prediction
    run: Descent | None

    @property
    def label(self) -> str:
        return self.predicted.candidate.label

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
class Ranking(Compared):
    """A comparison of the best few, and all candidates, the best prediction first."""

    ranked: list[Ranked]

    @property
    def predicted(self) -> list[Ranked]:
        """The methods that were run, in the predicted order."""
        return [one for one in self.ranked if one.run is not None]

    @property
    def measured(self) -> list[Ranked]:
        """The methods that were run, in the measured order; last those that missed the accuracy."""
        never = float("inf")
        return sorted(self.predicted, key=lambda c: never if c.seconds is None else c.seconds)

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
            **super().record(),
            "accuracy": self.setting.limits.accuracy,
            "ranking": ranking,
            "choices": [one.record() for one in self.ranked],
        }

    def shown(self) -> Sequence[RenderableType]:
        """The best predictions, and all that were run; numbers are up to the accuracy."""
        rows = [one for one in self.ranked if one.place <= _ROWS_SHOWN or one.run is not None]
        return str(self.setting), table(_columns(self), rows), _verdict(self)


def _verdict(ranking: Ranking) -> str:
    """Say in a few sentences whether the ranking held, and how far theory was from the runs."""
    best, fastest = ranking.predicted[0], ranking.measured[0]
    in_order, pairs = ranking.pairs_in_order
    if fastest.seconds is None:
        return f"None reached {ranking.setting.limits.accuracy:g}: allow more with --rounds."
    if ranking.best_held:
        start = f"The choice held: {best.label} was predicted to be fastest, and is"
    else:
        start = (
            f"The choice did not hold: {best.label} was predicted to be fastest, "
            f"but {fastest.label} is"
        )
        if best.seconds is not None:
            start += f", in {fastest.seconds / best.seconds:.0%} of its time"
    others = f"; {in_order} of {pairs} pairs are in the predicted order" if pairs else ""
    return f"{start}{others}. {_slack(ranking)}"


def _slack(ranking: Ranking) -> str:
    """How many of the predicted rounds were needed, and what that means for the ranking."""
    reached = [(one.run, one.predicted) for one in ranking.predicted if one.seconds is not None]
    shares = [run.last.rounds / predicted.rounds for run, predicted in reached if run is not None]
    least, most = min(shares), max(shares)
    said = f"Runs took {least:.0%} to {most:.0%} of the predicted rounds"
    if most <= _EVEN * least:
        return f"{said}."
    return (
        f"{said}: the noise of some messages, or what the methods have to learn first, counts for "
        "more than the prediction says, so what is predicted to be close may change places."
    )


def _columns(ranking: Ranking) -> Sequence[Column[Ranked]]:
    places = {one.label: str(place) for place, one in enumerate(ranking.measured, 1)}
    return (
        Column("", lambda one: str(one.place)),
        Column("method", lambda one: one.label, is_text=True),
        Column("step", lambda one: f"{one.predicted.step_size:.3g}"),
        Column("message", lambda one: traffic_text(one.predicted.message_bits)),
        Column("rounds\nat most", lambda one: f"{one.predicted.most_rounds:,}"),
        Column("\npredicted", lambda one: f"{one.predicted.rounds:,}"),
        Column("\nmeasured", _rounds),
        Column("time\npredicted", lambda one: seconds_text(one.predicted.seconds)),
        Column("\nmeasured", _time),
        Column("\nplace", lambda one: places.get(one.label, "")),
    )


def _rounds(one: Ranked) -> str:
    if one.run is None:
        return ""
    return one.run.ending if one.seconds is None else f"{one.run.last.rounds:,}"


def _time(one: Ranked) -> str:
    if one.run is None:
        return ""
    return "-" if one.seconds is None else seconds_text(one.seconds)
