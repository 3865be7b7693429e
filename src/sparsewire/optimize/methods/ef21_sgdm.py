"""EF21-SGDM: EF21 on momentum, so that stochastic gradients of small batches are enough."""

from __future__ import annotations

from typing import Any

from sparsewire.optimize.methods.ef21 import Ef21
from sparsewire.optimize.methods.sampled import Sampled
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Problem


def theory(problem: Problem, contraction: float, eta: float) -> Theory:
    """Any smooth f: gamma = min{ a / (20 M), eta / (7 L) }, where M^2 = mean_i L_i^2.

    The mean of E|grad f(x^k)|^2 over T steps is then of the order of
    1/(gamma T) + (eta^3/a^2 + eta^2/a + eta/n) sigma^2. I. Fatkhullin, A. Tyurin and P. Richtarik,
    "Momentum provably improves error feedback!" (NeurIPS 2023), Theorem 3.
    """
    return Theory(min(contraction / (20 * problem.L_rms), eta / (7 * problem.L)))


class Ef21Sgdm(Sampled, Ef21):
    """EF21 whose targets are v_i = (1 - eta) v_i + eta g, g the mean gradient of drawn f_ij.

    v_i starts as such a mean gradient.
    """

    saved = (*Ef21.saved, "v")

    def __init__(self, *parts: Any, eta: float = 0.1, **options: Any) -> None:
        """Raises ValueError for eta outside (0, 1]."""
        if not 0 < eta <= 1:
            raise ValueError(f"eta must be in (0, 1], not {eta}")
        self.eta = eta
        super().__init__(*parts, **options)

    def _begin(self) -> None:
        super()._begin()
        self.v: Floats | None = None

    def _theory(self) -> Theory:
        self._require_contraction()
        return theory(self.problem, self.contraction, self.eta)

    def _targets(self) -> Floats:
        fresh = self._estimates()
        self.v = fresh if self.v is None else (1 - self.eta) * self.v + self.eta * fresh
        return self.v
