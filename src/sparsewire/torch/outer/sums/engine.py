"""Sparse vectors added by the engine on their way: exact, and short where members keep the same
positions or blocks. For sparsifiers, whose messages need not be read to be added."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.compress.marks import Marked
from sparsewire.sparse_vector import SparseVector
from sparsewire.torch.outer.sums.contribution import contribution
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector
from sparsewire.torch.outer.sums.whole import Roll, check_sum


class EngineSum(Sums):
    """Codes of `operator` as positions and float32 values, or as rows if it keeps blocks.

    `algorithm` is one of the engine's: "auto" takes the fastest, and then the last bits of a sum
    may differ from run to run, though not between members. Raises CompressError for an operator
    whose codes are not few elements or blocks.
    """

    def __init__(self, operator: Compressor, draws: Draws, algorithm: str = "auto") -> None:
        super().__init__(operator.dimension)
        zero = operator.code(np.zeros(self.elements, np.float32), draws)
        marked = operator.marked(zero)
        if marked is None:
            raise CompressError(
                "only codes of marked elements or blocks are added by the engine: take a sparsifier"
            )
        self._operator = operator
        self._draws = draws
        self._algorithm = algorithm
        self._blocks = marked.blocks

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        own = contribution(self._operator, vector, self._draws, self._parameters)
        roll = Roll(communicator, own.code is not None, own.error is not None, timeout)
        given = self._sparse(None if own.code is None else self._operator.marked(own.code))
        total = communicator.all_reduce(
            given, algorithm=self._algorithm, result="dense", timeout=timeout
        )
        own.check()
        contributors = roll.contributors()
        return Added(check_sum(total.reshape(-1)[: self.elements]), own.code, contributors)

    def _sparse(self, marked: Marked | None) -> SparseVector:
        """Positions, or blocks as rows of which the last is filled up with zeros."""
        count, size = self._blocks.count, self._blocks.size
        if marked is None:
            return SparseVector.empty(count, np.float32, None if size == 1 else size)
        values = marked.values
        return SparseVector(marked.marks.positions(), _rows(values, size), count)

    def take_off(self, sent: Any, residual: Vector) -> None:
        self._operator.add(sent, residual, -1.0)


def _rows(values: NDArray[Any], size: int) -> NDArray[Any]:
    if size == 1:
        return values
    whole = np.zeros((-(-values.size // size), size), values.dtype)
    whole.reshape(-1)[: values.size] = values
    return whole
