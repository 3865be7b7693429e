"""Error feedback of one replica: what compression left out is owed, and is sent later."""

from __future__ import annotations

from torch import Tensor

from sparsewire.torch.outer.tiles import norm


class Residual:
    """e of one fragment, float32: e <- beta e + delta, and what was sent is taken off.

    `vector` stays as it was before a round until the round is committed.
    """

    def __init__(self, vector: Tensor, beta: float) -> None:
        self.vector = vector
        self.beta = beta
        self._norm: float | None = None

    def take(self, left: Tensor) -> Tensor:
        """A round counts, and `left` is what is owed now: beta e + delta, less what was sent.

        Returns the memory of what was owed before, which the next round may overwrite.
        """
        free, self.vector, self._norm = self.vector, left, None
        return free

    def add(self, owed: Tensor) -> None:
        """Owe more: what this replica owed as an owner of sums."""
        self.vector += owed
        self._norm = None

    def load(self, vector: Tensor) -> None:
        """Owe this instead."""
        self.vector.copy_(vector)
        self._norm = None

    @property
    def norm(self) -> float:
        """The l2 norm of what is owed; a pass over the vector where that has changed."""
        if self._norm is None:
            self._norm = norm(self.vector)
        return self._norm
