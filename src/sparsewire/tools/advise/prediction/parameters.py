"""Parameters as they were recorded, and which of them look like embeddings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from sparsewire.profile.records.recorded import Parameter, Recorded, Step
from sparsewire.tools.advise.prediction.density import Overlap

_FEW_ELEMENTS = 0.1
_FEW_ROWS = 0.5
_MANY_ROWS = 1000


@dataclass(frozen=True)
class Seen:
    """A parameter as it was recorded: which of the model's, and what of it is not zero.

    `rows` is the share of its rows on one rank, `union_rows` on any. `table` is the class that
    looks them up, where it takes `sparse=True`; `optimizer` that of what steps it.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    is_sparse: bool
    elements: float
    blocks: float
    rows: float
    union_rows: float | None = None
    table: str | None = None
    optimizer: str | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def looks_like_table(self) -> bool:
        """A matrix with many rows, of which a step touches few, and that is looked up as one."""
        is_long = len(self.shape) == 2 and self.shape[0] >= _MANY_ROWS
        return is_long and not self.is_sparse and self.table is not None and self.rows < _FEW_ROWS

    def union_of(self, recorded_ranks: int) -> Overlap:
        """How many of its rows more ranks touch."""
        return Overlap.of(self.rows, self.union_rows, recorded_ranks)


def seen_parameters(recorded: Recorded) -> list[Seen]:
    """All of the model, with means over ranks and steps; those never looked at count as dense."""
    steps = [step for rank in recorded.ranks for step in rank.steps if step.parameters]

    def seen(number: int, name: str) -> float | None:
        return density_of(steps, number, name)

    first = recorded.ranks[0]
    optimizers = {number: each.name for each in first.optimizers for number in each.parameters}
    found = []
    for number, told in enumerate(first.parameters):
        elements = _or(seen(number, "element_density"), 1.0)
        found.append(
            Seen(
                number,
                told.name,
                tuple(told.shape),
                told.sparse,
                elements=elements,
                blocks=_or(seen(number, "block_density"), 1.0),
                rows=_or(seen(number, "row_density"), elements),
                union_rows=seen(number, "union_row_density"),
                table=_table(told, elements, is_old=first.cores is None),
                optimizer=optimizers.get(number),
            )
        )
    return found


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _table(told: Parameter, elements: float, *, is_old: bool) -> str | None:
    """Profiles of earlier versions do not say what looks rows up: then it is guessed."""
    if is_old:
        return "Embedding" if elements < _FEW_ELEMENTS else None
    return told.table


def density_of(steps: Iterable[Step], parameter: int, name: str) -> float | None:
    """The mean density of a parameter over steps and ranks; None where it was never looked at."""
    return mean(
        getattr(density, name)
        for step in steps
        for density in step.parameters
        if density.parameter == parameter
    )


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
