"""What methods on stochastic gradients have in common: how many components are drawn."""

from __future__ import annotations

from typing import Any

from sparsewire.optimize.methods.method import Method
from sparsewire.optimize.problems.problem import Floats


class Sampled(Method):
    """A method whose workers draw `batch` of their components per step, with replacement."""

    def __init__(self, *parts: Any, batch: int = 1, **options: Any) -> None:
        """Takes `parts` and `options` as the method does that works on full gradients."""
        self.batch = batch
        super().__init__(*parts, **options)

    def _estimates(self) -> Floats:
        """Stochastic gradients of the local workers at x: shape (local, dimension)."""
        return self._batch_gradients(self._draw(self.batch), self.x)
