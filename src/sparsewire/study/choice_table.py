"""A ranking as a table on the terminal: what was predicted, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.study.ranking import Choice, Ranking
from sparsewire.study.table import seconds, size

_ROWS_SHOWN = 12


def ranked(ranking: Ranking) -> Table:
    """The best predictions, and all that were run; numbers are up to the accuracy."""
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("method", overflow="fold")
    for name in ("step", "message", "rounds\nat most", "\npredicted", "\nmeasured"):
        table.add_column(name, justify="right")
    for name in ("time\npredicted", "\nmeasured"):
        table.add_column(name, justify="right")
    for place, choice in enumerate(ranking.choices, 1):
        if place <= _ROWS_SHOWN or choice.run is not None:
            table.add_row(str(place), *_cells(choice))
    return table


def verdict(ranking: Ranking) -> str:
    """Say in a sentence or two whether the ranking held."""
    best, fastest = ranking.predicted[0], ranking.measured[0]
    in_order, pairs = ranking.pairs_in_order
    if fastest.seconds is None:
        return f"None reached {ranking.accuracy:g}: allow more with --rounds."
    if ranking.best_held:
        start = f"The choice held: {best.label} was predicted to be fastest, and is"
    else:
        start = (
            f"The choice did not hold: {best.label} was predicted to be fastest, "
            f"but {fastest.label} is"
        )
    others = f"; {in_order} of {pairs} pairs are in the predicted order" if pairs else ""
    return f"{start}{others}."


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
