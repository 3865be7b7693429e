"""Error feedback of one replica: what compression left out is owed, and is sent later."""

from __future__ import annotations

from torch import Tensor


class Residual:
    """e of one fragment, float32: e <- beta e + delta, and what was sent is taken off.

    Until a round is committed, e stays as it was before the round.
    """

    def __init__(self, vector: Tensor, beta: float) -> None:
        self.vector = vector
        self.beta = beta
        self._turned: Tensor | None = None

    def turn(self, delta: Tensor) -> Tensor:
        """Add beta e to `delta`, in place; the caller takes off what it sends before `commit`."""
        self._turned = delta.add_(self.vector, alpha=self.beta)
        return delta

    def commit(self) -> Tensor:
        """The round counts: what is left of the turned vector is owed now.

        Returns the memory of what was owed before, which the next round may overwrite.
        """
        assert self._turned is not None, "a round is turned before it is committed"
        free, self.vector, self._turned = self.vector, self._turned, None
        return free

    def norm(self) -> float:
        """The l2 norm of what is owed."""
        return float(self.vector.norm())
