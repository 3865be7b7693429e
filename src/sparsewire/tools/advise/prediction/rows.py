"""A processor's time for rows of a sparse gradient, as a profile has rehearsed it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from sparsewire.profile.records.recorded import Cost, Recorded
from sparsewire.tools.advise.prediction import costs
from sparsewire.tools.advise.prediction.shared import recorded_crowd

INSTEAD = "SparseAdam"
"""The optimizer of a table if the model's takes no sparse gradients."""


@dataclass(frozen=True)
class RowCosts:
    """The costs of one table: sorting rows and adding up equal ones, and `optimizer`'s step."""

    optimizer: str
    coalesce: Cost
    update: Cost
    is_rehearsed: bool


def row_costs(
    recorded: Recorded, parameter: int, row_bytes: float, optimizer: str | None
) -> RowCosts:
    """Means over ranks of what was rehearsed of this table, else of another, else constants."""
    found = [each for rank in recorded.ranks for each in rank.rehearsals]
    own = [each for each in found if each.parameter == parameter] or found
    if not own:
        return _constant(row_bytes, optimizer)
    crowd = recorded_crowd(recorded) or 1.0
    return RowCosts(
        own[0].optimizer,
        coalesce=_mean((each.coalesce for each in own), crowd),
        update=_mean((each.update for each in own), crowd),
        is_rehearsed=True,
    )


def _mean(lines: Iterable[Cost], crowd: float) -> Cost:
    known = list(lines)
    return Cost(
        statistics.fmean(line.base_s for line in known) / crowd,
        statistics.fmean(line.row_s for line in known) / crowd,
    )


def _constant(row_bytes: float, optimizer: str | None) -> RowCosts:
    name = optimizer if optimizer in costs.UPDATE_BYTE_S else INSTEAD
    assert name is not None
    row_s = costs.COALESCE_ROW_S + costs.COALESCE_BYTE_S * row_bytes
    return RowCosts(
        name,
        Cost(costs.COALESCE_BASE_S, row_s),
        Cost(costs.UPDATE_BASE_S, costs.UPDATE_BYTE_S[name] * row_bytes),
        is_rehearsed=False,
    )
