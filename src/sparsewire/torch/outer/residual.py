"""Error feedback of one replica: what compression left out is owed, and is sent later."""

from __future__ import annotations

import math

from torch import Tensor

from sparsewire.torch.outer.passes import norm


class Residual:
    """e of one fragment, float32: e <- beta e + delta, and what was sent is taken off.

    `vector` stays as it was before a round until the round is committed. `inherited` is what this
    replica owes beside that, without beta: what it owed as an owner of sums in an earlier epoch.
    """

    def __init__(self, vector: Tensor, beta: float) -> None:
        self.vector = vector
        self.beta = beta
        self.inherited: Tensor | None = None
        self._turned: Tensor | None = None
        """What had been inherited when the vector was turned, which holds it since."""
        self._norm: float | None = None

    def turn(self, vector: Tensor) -> None:
        """Add what was inherited to delta + beta e, in place."""
        self._turned = self.inherited
        if self.inherited is not None:
            vector += self.inherited

    def take(self, left: Tensor) -> Tensor:
        """A round counts, and `left` is what is owed now: what was turned, less what was sent.

        Returns the memory of what was owed before, which the next round may overwrite.
        """
        free, self.vector, self._norm = self.vector, left, None
        if self._turned is self.inherited:
            self.inherited = None
        elif self._turned is not None and self.inherited is not None:
            self.inherited = self.inherited - self._turned
        return free

    def inherit(self, owed: Tensor) -> None:
        """Owe more, which may come after a round was turned."""
        self.inherited = owed if self.inherited is None else self.inherited + owed
        self._norm = None

    def load(self, vector: Tensor) -> None:
        """Owe this instead."""
        self.vector.copy_(vector)
        self.inherited, self._norm = None, None

    def whole(self) -> Tensor:
        """All that is owed, on the host."""
        owed = self.vector if self.inherited is None else self.vector + self.inherited
        return owed.cpu().clone()

    @property
    def norm(self) -> float:
        """The l2 norm of what is owed; a pass over the vector where that has changed."""
        if self._norm is None:
            inherited = 0.0 if self.inherited is None else norm(self.inherited)
            self._norm = math.hypot(norm(self.vector), inherited)
        return self._norm
