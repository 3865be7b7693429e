"""DIANA: workers compress the difference between their gradient and a shift that learns it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from sparsewire.optimize.methods.method import Method
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Problem


def theory(problem: Problem, omega: float) -> Theory:
    """Convex f_i and strongly convex f: with L the largest L_i, and alpha = 1 / (omega + 1),

        gamma = min{ 2 / ((m + L) (1 + 6 omega / n)), alpha / (2 m) },    rate = gamma m,    or
        gamma = min{ 1 / (L (1 + 6 omega / n)), alpha / (2 mu) },         rate = gamma mu,

    whichever has the higher rate; E Psi^k <= (1 - rate)^k Psi^0, where Psi is |x - x*|^2 plus a
    multiple of mean_i |h_i - grad f_i(x*)|^2. The first is the theorem on DIANA with unbiased
    compressors, for any R, of S. Horvath et al., "Stochastic distributed learning with gradient
    quantization and variance reduction" (2019); every f_i must be strongly convex there, and m is
    the least mu_i, not mu of f.

    The second needs no more than convex f_i. The proof is the same but for one step: it bounds
    G = mean_i |grad f_i(x) - grad f_i(x*)|^2, which enters as gamma^2 (1 + 6 omega / n) G, by L
    times <grad f(x) - grad f(x*), x - x*>, since convex L-smooth gradients are co-coercive (Yu.
    Nesterov, Introductory lectures on convex optimization, theorem 2.1.5). Half of what the step
    gains pays for it, and the other half is at least gamma mu |x - x*|^2.

    Otherwise `nonconvex_theory`.
    """
    if problem.mu <= 0:
        return nonconvex_theory(max(problem.L_i), 1, omega, problem.workers)
    alpha = 1 / (omega + 1)
    smoothness, spread = max(problem.L_i), 1 + 6 * omega / problem.workers
    least = min(problem.mu_i)
    of_each = _capped(2 / ((least + smoothness) * spread), least, alpha)
    of_all = _capped(1 / (smoothness * spread), problem.mu, alpha)
    return of_all if of_all.gamma * problem.mu > of_each.gamma * least else of_each


def _capped(gamma: float, mu: float, alpha: float) -> Theory:
    """Steps no longer than shifts can follow."""
    gamma = min(gamma, alpha / (2 * mu)) if mu > 0 else gamma
    return Theory(gamma, gamma * mu, alpha)


def nonconvex_theory(smoothness: float, m: int, omega: float, n: int) -> Theory:
    """Any smooth f without R, for DIANA (m = 1) and VR-DIANA (m components per worker).

    gamma = 1 / (10 L (1 + omega/n)^(1/2) (m^(2/3) + omega + 1)), alpha = 1 / (omega + 1), and
    `nonconvex_bound` holds. S. Horvath et al. (2019), the theorem on VR-DIANA for nonconvex f.
    """
    spread = math.sqrt(1 + omega / n) * (m ** (2 / 3) + omega + 1)
    return Theory(1 / (10 * smoothness * spread), alpha=1 / (omega + 1))


def nonconvex_bound(gamma: float, decrease: float, steps: int) -> float:
    """A bound on the mean of E|grad f(x^k)|^2 over the first `steps`, for `nonconvex_theory`.

    `decrease` is at least f(x^0) - min f.
    """
    return 4 * decrease / (gamma * steps)


class Diana(Method):
    """Worker i sends Q(g_i - h_i), and everybody moves h_i by alpha times that.

    The server steps along the mean of h_i + Q(g_i - h_i), with momentum `beta`:

        v = beta v + mean_i (h_i + Q_i),    x = prox(x - gamma v).

    The theory is for beta = 0 and unbiased compressors. K. Mishchenko et al., "Distributed learning
    with compressed gradient differences" (2019).
    """

    proximal = True
    saved: ClassVar[tuple[str, ...]] = ("h", "mean_h", "v")

    def __init__(
        self, *parts: Any, alpha: float | None = None, beta: float = 0.0, **options: Any
    ) -> None:
        """Raises ValueError for biased compressors, beta outside [0, 1), and beta together with R.

        With momentum the proximal step stands still where R weighs 1 - beta of what it should.
        """
        super().__init__(*parts, **options)
        if not 0 <= beta < 1:
            raise ValueError(f"beta must be in [0, 1), not {beta}")
        if beta and self.problem.l1:
            raise ValueError("momentum takes no l1 term")
        if alpha is not None or beta:
            self.rate = None
        self.alpha = self._theory().alpha if alpha is None else alpha
        self.beta = beta

    def _begin(self) -> None:
        self._require_unbiased()
        self.h = self._zeros()
        """The shifts of the local workers: shape (local, dimension)."""
        self.mean_h: Floats = self.h[0].copy()
        """The server's copy of their mean over all workers."""
        self.v: Floats = self.h[0].copy()

    def _theory(self) -> Theory:
        return theory(self.problem, self.omega)

    def _step(self) -> None:
        differences = self._send(self._estimates() - self.h)
        difference = differences.mean(axis=0)
        self.v = self.beta * self.v + (self.mean_h + difference)
        self.h = self.h + self.alpha * self._own(differences)
        self.mean_h = self.mean_h + self.alpha * difference
        self.x = self.problem.prox(self.x - self.gamma * self.v, self.gamma)

    def _estimates(self) -> Floats:
        """Unbiased estimates of the local workers' gradients at x: shape (local, dimension)."""
        return self._gradients()
