"""Every member gets every message, and adds up all of them in rank order: bytes down grow with the
number of members, but the sum is that of the messages as they are."""

from __future__ import annotations

from typing import Any

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import Compressor, Draws
from sparsewire.sparse_vector import SparseVector
from sparsewire.torch.outer.sums.contribution import add_parcel, contribution
from sparsewire.torch.outer.sums.parcel import most_rows, unwrap, wrap
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector
from sparsewire.torch.outer.sums.whole import check_sum


class Gather(Sums):
    """Messages of `operator`, which draws from `draws`, by an all_gather."""

    def __init__(self, operator: Compressor, draws: Draws) -> None:
        super().__init__(operator.dimension)
        self._operator = operator
        self._draws = draws
        self._positions = most_rows(self.elements)

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        own = contribution(self._operator, vector, self._draws, self._parameters)
        rows = wrap(own.parcel, self._positions)
        received = communicator.all_gather(rows, timeout=timeout)
        own.check()
        total, contributors = self._added(received)
        return Added(total, own.code, contributors)

    def _added(self, received: list[SparseVector]) -> tuple[Vector, int]:
        total = self._zeros()
        contributors = 0
        for rank, rows in enumerate(received):
            contributors += add_parcel(unwrap(rows, rank), rank, self._operator, total)
        return check_sum(total), contributors

    def take_off(self, sent: Any, residual: Vector) -> None:
        self._operator.add(sent, residual, -1.0)
