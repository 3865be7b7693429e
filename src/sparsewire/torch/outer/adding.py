"""How the contributions to a fragment are coded and added: settings, which make the sums of each
fragment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from torch import Tensor

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import CompressError, Compressor, as_contraction, parse
from sparsewire.torch.outer.on_device import OnDevice
from sparsewire.torch.outer.state import FragmentState
from sparsewire.torch.outer.sums.choice import DENSE, PAIRS, sums_for
from sparsewire.torch.outer.sums.parts import EXACT
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector

_SAMPLE = 1 << 16


@dataclass(frozen=True)
class Adding:
    """Settings as `sparsewire.torch.outer.sums.choice.sums_for` takes them."""

    compressor: str
    topology: str
    way: str
    down: str | None
    seed: int

    @property
    def is_dense(self) -> bool:
        """Whether vectors are sent as they are, so that nothing is owed."""
        return self.compressor == DENSE

    @property
    def is_paired(self) -> bool:
        """Whether random pairs average, so that replicas have points of their own."""
        return self.topology == PAIRS

    @cached_property
    def follows(self) -> bool:
        """Whether the operator compares vectors with the parameters that they are updates of."""
        return not self.is_dense and _follows(_operator(self.compressor, _SAMPLE).parts[0])

    def sums(self, state: FragmentState, index: int) -> Sums:
        """The sums of fragment `index`.

        Raises ValueError for settings that do not fit together, and CompressError for operators.
        """
        seed = self.seed + index
        sums = self._sums(_operator_of(self.compressor), state, self.way, self.down, seed)
        if not self.is_paired:
            return sums
        return PairedPoints(sums, self._sums(DENSE, state, self.way, None, seed), state)

    def _sums(
        self, compressor: Any, state: FragmentState, way: str, down: str | None, seed: int
    ) -> Sums:
        elements = state.fragment.elements
        down_operator = None if down is None else _operator_of(down)
        return sums_for(
            compressor, elements, way=way, down=down_operator, topology=self.topology, seed=seed
        )

    def given(self, vector: Tensor) -> Any:
        """A vector as sums take it: an array, or the tensor if its device compresses it."""
        on_host = vector.is_cpu or self.is_dense
        return vector.detach().cpu().numpy() if on_host else vector.detach()


def _follows(operator: Compressor) -> bool:
    """Whether an operator, or one in it, has a way of its own to follow parameters."""
    own = type(operator).follow is not Compressor.follow
    return own or any(map(_follows, operator.parts))


def _operator_of(text: str) -> Any:
    """What makes the operator for a number of elements; names of no operator stay names."""
    return text if text in (DENSE, EXACT) else partial(_operator, text)


def _operator(text: str, elements: int) -> Compressor:
    return OnDevice(as_contraction(parse(text, elements)))


class PairedPoints(Sums):
    """Random pairs, whose members also draw their points together (NoLoCo, arXiv 2506.10911).

    `deltas` and `points` add up the same pairs. The total is mean delta + phi - mean phi over the
    pair, with phi this replica's point. A replica that contributes nothing gets zeros.
    """

    def __init__(self, deltas: Sums, points: Sums, state: FragmentState) -> None:
        super().__init__(state.fragment.elements)
        self._state = state
        self._deltas = deltas
        self._points = points

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        point = None if vector is None else self._point()
        failure: CompressError | None = None
        try:
            deltas = self._deltas.run(communicator, vector, timeout)
        except CompressError as error:
            failure = error
        # Other pairs know nothing of a failure in this one.
        points = self._points.run(communicator, point, timeout)
        if failure is not None:
            raise failure
        if point is None:
            return Added(np.zeros(self.elements, np.float32), None, 0)
        total = deltas.total / np.float32(deltas.contributors)
        total += point - points.total / np.float32(points.contributors)
        return Added(total, deltas.sent, deltas.contributors)

    def _point(self) -> Vector:
        point: Vector = self._state.shared.vector.cpu().numpy()
        return point

    def take_off(self, sent: Any, residual: Vector) -> None:
        self._deltas.take_off(sent, residual)

    def commit(self) -> None:
        self._deltas.commit()
        self._points.commit()

    def abort(self) -> None:
        self._deltas.abort()
        self._points.abort()

    def reset(self, residual: Vector | None = None) -> float:
        self._points.reset()
        return self._deltas.reset(residual)
