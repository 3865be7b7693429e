"""The state of one replica: for each fragment the shared point, what is owed, and where training
started from. The thread of rounds and the training loop share it under one lock."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from sparsewire.torch.outer.fragments import Fragment
from sparsewire.torch.outer.residual import Residual
from sparsewire.torch.outer.shared_point import MakeOptimizer, SharedPoint


class FragmentState:
    """One fragment of one replica.

    `base` is the point that training started from, if rounds have moved the shared point since
    without this replica; None: training started from the shared point itself.
    """

    def __init__(self, fragment: Fragment, make: MakeOptimizer, beta: float | None) -> None:
        self.fragment = fragment
        self.shared = SharedPoint(fragment, make)
        self.residual = None if beta is None else Residual(fragment.empty().zero_(), beta)
        self.base: Tensor | None = None
        self._delta = fragment.empty()

    def turned(self) -> tuple[Tensor, float, float]:
        """What this replica has to send, the norm of its delta, and that of what it has to send.

        The vector stays as it is until the round is committed, or given up.
        """
        start = self.shared.vector if self.base is None else self.base
        residual, beta = (self.residual.vector, self.residual.beta) if self.residual else (None, 0)
        moved, size = self.fragment.moved(start, self._delta, residual, beta)
        if self.residual is not None:
            self.residual.turn(self._delta)
        return self._delta, moved, size

    def keep_base(self) -> None:
        """The shared point is about to move without this replica's delta."""
        if self.base is None:
            self.base = self.shared.vector.clone()

    def restart(self) -> None:
        """Give up what training has done, and start from the shared point."""
        self.base = None
        self.fragment.write(self.shared.vector)

    def merge(self, mix: float | str, left: Tensor | None) -> None:
        """A round has moved the shared point while training went on: bring both together.

        With `left`, the parameters as they were when the round began, training keeps what it has
        done since; else `mix` is the share of the parameters as they are.
        """
        point = self.shared.vector
        if left is not None:
            # The round is over, so the memory of its delta is free.
            self.fragment.moved(left, self._delta)
            self.fragment.write(torch.sub(point, self._delta, out=self._delta))
        else:
            self.fragment.mix(point, float(mix))
        self.base = None

    def commit(self, mean: Tensor, contributed: bool) -> None:
        """A round is committed, which moves the shared point.

        If this replica contributed, what it sent has been taken off the vector of `turned`.
        """
        if contributed and self.residual is not None:
            self._delta = self.residual.take(self._delta)
        if contributed:
            self.base = None
        else:
            self.keep_base()
        self.shared.advance(mean)

    @property
    def owed(self) -> float:
        """The norm of what this replica owes."""
        return 0.0 if self.residual is None else self.residual.norm


class ReplicaState:
    """All fragments of one replica."""

    def __init__(self, states: Sequence[FragmentState]) -> None:
        self.fragments = states
        self.lock = threading.RLock()
        """Held to read or write any of it."""
        self.rounds = 0
        """How many rounds have been committed; round r is of fragment r modulo their number."""
        self.loads = 0
        """How often a saved state was loaded."""
        self.missed = 0
        """How many rounds in a row went by without this replica."""

    def due(self, round_number: int) -> FragmentState:
        """The fragment of a round."""
        return self.fragments[round_number % len(self.fragments)]

    @property
    def owed(self) -> float:
        """The norm of all that this replica owes."""
        return math.hypot(*(each.owed for each in self.fragments))

    def digest(self) -> bytes:
        """The digest of the shared state that the last round left; 16 bytes."""
        if self.rounds == 0:
            return bytes(16)
        return self.due(self.rounds - 1).shared.digest()
