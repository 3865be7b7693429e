"""How the contributions to a fragment are coded and added: settings, of which each epoch makes the
sums that its members use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import Compressor, Draws, Identity, as_contraction, parse
from sparsewire.torch.outer.on_device import OnDevice
from sparsewire.torch.outer.state import FragmentState
from sparsewire.torch.outer.sums.choice import sums_for
from sparsewire.torch.outer.sums.dense import Dense
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.owned import Owned
from sparsewire.torch.outer.sums.pairs import Pairs
from sparsewire.torch.outer.sums.parts import EXACT
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector

DENSE = "dense"


class Topology(Enum):
    """Who adds up with whom in a round."""

    ALL = "all"
    PAIRS = "pairs"


@dataclass(frozen=True)
class Adding:
    """`compressor` and `down` are texts for `parse`; `way` is "auto", "gather" or "owned".

    Raises ValueError for settings that do not fit together, and CompressError for operators.
    """

    compressor: str
    topology: Topology
    way: str
    down: str | None
    seed: int

    def __post_init__(self) -> None:
        if self.way not in ("auto", "gather", "owned"):
            raise ValueError(f"sums must be auto, gather or owned, not {self.way!r}")
        if self.down is not None and self.way == "gather":
            raise ValueError("down compresses sums of owners, and gather has none: leave one out")
        if self.is_dense and (self.down is not None or self.way != "auto"):
            raise ValueError("dense vectors are added by the engine: leave out sums and down")
        for text in (self.compressor, self.down):
            if text not in (None, DENSE, EXACT):
                as_contraction(parse(text, 1 << 24))

    @property
    def is_dense(self) -> bool:
        """Whether vectors are sent as they are, so that nothing is owed."""
        return self.compressor == DENSE

    def sums(
        self, communicator: Communicator, state: FragmentState, index: int, timeout: float
    ) -> Sums:
        """The sums of fragment `index` in a new epoch; a collective call."""
        elements, rank = state.fragment.elements, communicator.rank
        draws = Draws(self.seed, rank, f"outer {index}")
        if self.topology is Topology.PAIRS:
            own = self._operator(elements) if not self.is_dense else Identity(elements)
            return PairedPoints(own, state, draws, self.seed + index)
        if self.is_dense:
            return Dense(elements)
        if self.way == "gather":
            return Gather(self._operator(elements), draws)
        down = None if self.down in (None, EXACT) else partial(_operator, self.down)
        if self.way == "owned":
            return Owned(elements, self._operator, draws, down or EXACT)
        return sums_for(communicator, elements, self._operator, draws, down=down, timeout=timeout)

    def _operator(self, elements: int) -> Compressor:
        return _operator(self.compressor, elements)


def _operator(text: str | None, elements: int) -> Compressor:
    assert text is not None, "an operator has a text"
    return OnDevice(as_contraction(parse(text, elements)))


class PairedPoints(Sums):
    """Random pairs, whose members also draw their points together (NoLoCo, arXiv 2506.10911).

    The total is mean delta + phi - mean phi over the pair, with phi this replica's point. A replica
    that contributes nothing gets zeros.
    """

    def __init__(self, operator: Compressor, state: FragmentState, draws: Draws, seed: int) -> None:
        super().__init__(operator.dimension)
        self._state = state
        self._deltas = Pairs(operator, draws, seed)
        self._points = Pairs(Identity(self.elements), draws, seed)

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        point = None if vector is None else self._point()
        deltas = self._deltas.run(communicator, vector, timeout)
        points = self._points.run(communicator, point, timeout)
        if point is None:
            return Added(np.zeros(self.elements, np.float32), None, 0)
        total = deltas.total / np.float32(deltas.contributors)
        total += point - points.total / np.float32(points.contributors)
        return Added(total, deltas.sent, deltas.contributors)

    def _point(self) -> Vector:
        point: Vector = self._state.shared.vector.detach().cpu().numpy().copy()
        return point

    def take_off(self, sent: Any, residual: Vector) -> None:
        self._deltas.take_off(sent, residual)

    def commit(self) -> None:
        self._deltas.commit()
        self._points.commit()

    def abort(self) -> None:
        self._deltas.abort()
        self._points.abort()


def given(vector: Tensor, adding: Adding) -> Any:
    """A vector as sums take it: an array, or the tensor itself if its device compresses it."""
    on_host = vector.is_cpu or adding.is_dense
    return vector.detach().cpu().numpy() if on_host else vector.detach()
