"""Whole vectors, float32, added by the engine's dense all_reduce: what all else is measured by."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector
from sparsewire.torch.outer.sums.whole import Roll


class Dense(Sums):
    """The code of a vector is the vector itself, and nothing is lost. Zeros are not sent.

    A sum may have elements that are not finite. Its norm tells, which the caller takes anyway: a
    pass over the vector and one over the sum would be a fifth of an outer step.
    """

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        roll = Roll(communicator, vector is not None, False, timeout)
        total = self._added(communicator, vector, timeout)
        return Added(total, vector, roll.contributors())

    def _added(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Vector:
        given = np.zeros(self.elements, np.float32) if vector is None else vector
        total = self._total()
        communicator.all_reduce(given, out=total, timeout=timeout)
        return total

    def take_off(self, sent: Any, residual: Vector) -> None:
        residual -= sent
