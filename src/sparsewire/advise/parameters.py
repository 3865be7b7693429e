"""Parameters as they were recorded, and which of them look like embeddings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from sparsewire.profile.recorded import Recorded, Step

_FEW_ELEMENTS = 0.1
_MANY_ROWS = 1000


@dataclass(frozen=True)
class Seen:
    """A parameter as it was recorded: which of the model's, and what of it is not zero."""

    number: int
    name: str
    shape: tuple[int, ...]
    is_sparse: bool
    elements: float
    blocks: float

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def looks_like_table(self) -> bool:
        """A matrix with many rows, of which a step touches few."""
        is_long = len(self.shape) == 2 and self.shape[0] >= _MANY_ROWS
        return is_long and not self.is_sparse and self.elements < _FEW_ELEMENTS


def seen_parameters(recorded: Recorded) -> list[Seen]:
    """All of the model, with means over ranks and steps; those never looked at count as dense."""
    steps = [step for rank in recorded.ranks for step in rank.steps if step.parameters]

    def seen(number: int, name: str) -> float:
        found = density_of(steps, number, name)
        return 1.0 if found is None else found

    return [
        Seen(
            number,
            told.name,
            tuple(told.shape),
            told.sparse,
            elements=seen(number, "element_density"),
            blocks=seen(number, "block_density"),
        )
        for number, told in enumerate(recorded.ranks[0].parameters)
    ]


def density_of(steps: Iterable[Step], parameter: int, name: str) -> float | None:
    """The mean density of a parameter over steps and ranks; None where it was never looked at."""
    return mean(
        getattr(density, name)
        for step in steps
        for density in step.parameters
        if density.parameter == parameter
    )


def mean(values: Iterable[float | None]) -> float | None:
    """Of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
