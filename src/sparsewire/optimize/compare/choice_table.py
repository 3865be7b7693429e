"""A ranking as a table on the terminal: what was predicted, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.optimize.compare.ranking import Choice, Ranking
from sparsewire.optimize.compare.table import seconds, size

_ROWS_SHOWN = 12
_EVEN = 1.25
"""Shares that differ by no more say nothing about one method against another."""


def ranked(ranking: Ranking) -> Table:
    """The best predictions, and all that were run; numbers are up to the accuracy."""
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("method", overflow="fold")
    for name in ("step", "message", "rounds\nat most", "\npredicted", "\nmeasured"):
        table.add_column(name, justify="right")
    for name in ("time\npredicted", "\nmeasured", "\nplace"):
        table.add_column(name, justify="right")
    measured = {choice.label: str(place) for place, choice in enumerate(ranking.measured, 1)}
    for place, choice in enumerate(ranking.choices, 1):
        if place <= _ROWS_SHOWN or choice.run is not None:
            table.add_row(str(place), *_cells(choice), measured.get(choice.label, ""))
    return table


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


def _lead(best: Choice, fastest: Choice) -> str:
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


def _cells(choice: Choice) -> Sequence[str]:
    predicted, run = choice.predicted, choice.run
    rounds, time = "", ""
    if run is not None:
        rounds = run.ending if choice.seconds is None else f"{run.last.rounds:,}"
        time = "-" if choice.seconds is None else seconds(choice.seconds)
    return (
        choice.label,
        f"{predicted.step_size:.3g}",
        size(predicted.message_bits),
        f"{predicted.most_rounds:,}",
        f"{predicted.rounds:,}",
        rounds,
        seconds(predicted.seconds),
        time,
    )
