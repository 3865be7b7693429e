"""Whole vectors, float32, added by the engine's dense all_reduce: what all else is measured by."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector
from sparsewire.torch.outer.sums.whole import Roll, check_sum, unusable


class Dense(Sums):
    """The code of a vector is the vector itself, and nothing is lost. Zeros are not sent."""

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        error = None if vector is None else unusable(vector)
        sent = None if error else vector
        roll = Roll(communicator, sent is not None, error is not None, timeout)
        total = self._added(communicator, sent, timeout)
        if error is not None:
            raise error
        contributors = roll.contributors()
        return Added(check_sum(total), sent, contributors)

    def _added(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Vector:
        given = np.zeros(self.elements, np.float32) if vector is None else vector
        total = self._total()
        communicator.all_reduce(given, out=total, timeout=timeout)
        return total

    def take_off(self, sent: Any, residual: Vector) -> None:
        residual -= sent
