"""A ranking on the terminal: what was predicted, what was measured, and whether the order held."""

from __future__ import annotations

from collections.abc import Sequence

from sparsewire.experiment.report import Column, Report, table
from sparsewire.optimize.compare.plot import by_costs
from sparsewire.optimize.compare.ranking import Ranked, Ranking
from sparsewire.optimize.compare.words import seconds, size

_ROWS_SHOWN = 12
_EVEN = 1.25
"""Shares that differ by no more say nothing about one method against another."""


def ranking_report(ranking: Ranking) -> Report:
    """The best predictions, and all that were run; numbers are up to the accuracy."""
    compared = ranking.compared
    rows = [one for one in ranking.ranked if one.place <= _ROWS_SHOWN or one.run is not None]
    shown = (str(compared.setting), table(_columns(ranking), rows), verdict(ranking))
    return Report(shown, ranking.record(), lambda: by_costs(compared.setting, compared.runs))


def verdict(ranking: Ranking) -> str:
    """Say in a few sentences whether the ranking held, and how far theory was from the runs."""
    best, fastest = ranking.predicted[0], ranking.measured[0]
    in_order, pairs = ranking.pairs_in_order
    if fastest.seconds is None:
        return f"None reached {ranking.accuracy:g}: allow more with --rounds."
    if ranking.best_held:
        start = f"The choice held: {best.label} was predicted to be fastest, and is"
    else:
        start = (
            f"The choice did not hold: {best.label} was predicted to be fastest, "
            f"but {fastest.label} is{_lead(best, fastest)}"
        )
    others = f"; {in_order} of {pairs} pairs are in the predicted order" if pairs else ""
    return f"{start}{others}. {_slack(ranking.shares)}"


def _lead(best: Ranked, fastest: Ranked) -> str:
    if best.seconds is None or fastest.seconds is None:
        return ""
    return f", in {fastest.seconds / best.seconds:.0%} of its time"


def _slack(shares: Sequence[float]) -> str:
    """How many of the predicted rounds were needed, and what that means for the ranking."""
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
        Column("message", lambda one: size(one.predicted.message_bits)),
        Column("rounds\nat most", lambda one: f"{one.predicted.most_rounds:,}"),
        Column("\npredicted", lambda one: f"{one.predicted.rounds:,}"),
        Column("\nmeasured", _rounds),
        Column("time\npredicted", lambda one: seconds(one.predicted.seconds)),
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
    return "-" if one.seconds is None else seconds(one.seconds)
