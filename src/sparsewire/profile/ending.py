"""The end of a rank's recording: it notes its optimizers, and rehearses rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from sparsewire.profile.records.clock import Clock
from sparsewire.profile.records.output import Output
from sparsewire.profile.records.recorded import Optimizer
from sparsewire.profile.records.rehearsal import Table, memory, rehearsals
from sparsewire.profile.taps.optimizer_tap import OptimizerTap


class Ending:
    """`widths` are those of the rows of tables, by the numbers of their parameters."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        widths: Mapping[int, int],
        output: Output,
        optimizers: OptimizerTap,
    ) -> None:
        self._parameters, self._widths = parameters, widths
        self._output, self._optimizers = output, optimizers

    def tell(self, clock: Clock | None) -> None:
        """Add to the profile what its steps do not tell; without a clock nothing is timed."""
        optimizers = self._optimizers.optimizers
        self._output.tell(optimizers=optimizers)
        if self._widths and clock is not None:
            device = self._parameters[0].device
            found = rehearsals(list(self._tables(optimizers)), clock)
            self._output.tell(memory=memory(device, clock), rehearsals=found)

    def _tables(self, optimizers: Iterable[Optimizer]) -> Iterator[Table]:
        names = {number: each.name for each in optimizers for number in each.parameters}
        for number in self._widths:
            share = self._row_share(number)
            if share:
                weight = self._parameters[number].detach()
                rows = max(1, round(share * weight.shape[0]))
                yield Table(number, weight, rows, names.get(number, ""))

    def _row_share(self, number: int) -> float | None:
        """A table's share of rows in the union of all ranks, or on this rank if unknown."""
        shares = [
            told.union_row_density or told.row_density
            for step in self._output.profile.steps
            for told in step.parameters
            if told.parameter == number
        ]
        known = [share for share in shares if share is not None]
        return statistics.median(known) if known else None
