"""Quantised SGD: each worker sends a compressed stochastic gradient."""

from __future__ import annotations

from sparsewire.optimize.methods.dcgd import Dcgd
from sparsewire.optimize.methods.sampled import Sampled
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Problem


def theory(problem: Problem, omega: float) -> Theory:
    """For convex f_ij and unbiased compressors, whatever the batch:

        gamma = 1 / (L + 2 (omega + 1) L_max / n),
        E|x^k - x*|^2 <= (1 - gamma mu)^k |x^0 - x*|^2
                         + gamma/mu 2 (omega + 1)/n mean_ij |grad f_ij(x*)|^2.

    E. Gorbunov, F. Hanzely and P. Richtarik, "A unified theory of SGD" (AISTATS 2020), Theorem 4.1
    with A = L + 2 (omega + 1) L_max / n. The second term is the floor at which it stalls.
    """
    gamma = 1 / (problem.L + 2 * (omega + 1) * problem.L_max / problem.workers)
    return Theory(gamma, gamma * problem.mu if problem.mu else None)


class Qsgd(Sampled, Dcgd):
    """x = prox(x - gamma mean_i Q(g_i)), where g_i is the mean gradient of `batch` drawn f_ij.

    D. Alistarh et al., "QSGD" (NeurIPS 2017), with any compressor.
    """

    def _theory(self) -> Theory:
        self._require_unbiased()
        return theory(self.problem, self.omega)
