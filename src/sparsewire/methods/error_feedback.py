"""What the methods with error feedback share: they take every compressor, biased ones included."""

from __future__ import annotations

from numpy.typing import ArrayLike

from sparsewire.compress.contractive import Contractive
from sparsewire.methods.method import Compressors, Method
from sparsewire.methods.network import Network
from sparsewire.problems.problem import Problem


class ErrorFeedback(Method):
    """A method over contractive maps: E|C(x) - x|^2 <= (1 - a) |x|^2, a = `self.contraction`.

    An unbiased compressor Q is no contraction, so Q / (omega + 1) takes its place.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        compressors: Compressors,
        *,
        gamma: float | None,
        x0: ArrayLike | None,
        seed: int,
    ) -> None:
        """Raises ValueError without `gamma` where no contraction is known of a compressor."""
        super().__init__(problem, network, compressors, x0=x0, seed=seed)
        self.compressors = [c if c.is_biased else Contractive(c) for c in self.compressors]
        if gamma is None and not self.contraction > 0:
            raise ValueError("no contraction is known of this compressor: pass gamma")
