"""Gradient descent whose workers send gradients whole (GD), compressed (DCGD), or drawn (QSGD)."""

from __future__ import annotations

from typing import Any

from sparsewire.tools.optimize.methods.method import Method, Sampled, Theory
from sparsewire.tools.optimize.methods.network import Network
from sparsewire.tools.optimize.problems.problem import Problem


class Gd(Method):
    """x = prox(x - gamma mean_i grad f_i(x)): what compressed methods compete with."""

    proximal = True

    def __init__(self, problem: Problem, network: Network, **options: Any) -> None:
        super().__init__(problem, network, (), **options)

    def theory(self) -> Theory:
        """Proximal gradient descent on a smooth and convex f.

        |x - x*|^2 shrinks by 1 - rate per step: Y. Nesterov, "Introductory Lectures on Convex
        Optimization" (2004), Theorem 2.1.15; the proximal step does not expand distances. Without
        strong convexity gamma = 1/L, and there is no rate.
        """
        problem = self.problem
        if problem.mu <= 0:
            return Theory(1 / problem.L)
        gamma = 2 / (problem.mu + problem.L)
        return Theory(gamma, gamma**2 * problem.mu * problem.L)

    def _step(self) -> None:
        gradient = self._send_exactly(self._estimates()).mean(axis=0)
        self.x = self.problem.prox(self.x - self.gamma * gradient, self.gamma)


class Dcgd(Method):
    """Distributed compressed gradient descent: x = prox(x - gamma mean_i Q(grad f_i(x))).

    With a biased compressor there is no theory: pass `gamma`, and expect it to diverge.
    """

    proximal = True

    def theory(self) -> Theory:
        """For convex f_i and unbiased compressors, with L_i the largest of the workers:

            gamma = 1 / (L + 2 omega L_i / n),
            E|x^k - x*|^2 <= (1 - gamma mu)^k |x^0 - x*|^2
                             + gamma/mu 2 omega/n mean_i |grad f_i(x*)|^2.

        E. Gorbunov, F. Hanzely and P. Richtarik, "A unified theory of SGD" (AISTATS 2020), Theorem
        4.1 with A = L + 2 omega L_i / n. The second term is the floor at which the method stalls.
        """
        self._require_unbiased()
        problem = self.problem
        gamma = 1 / (problem.L + 2 * self.omega * max(problem.L_i) / problem.workers)
        return Theory(gamma, gamma * problem.mu if problem.mu else None)

    def _step(self) -> None:
        gradient = self._send(self._estimates()).mean(axis=0)
        self.x = self.problem.prox(self.x - self.gamma * gradient, self.gamma)


class Qsgd(Sampled, Dcgd):
    """x = prox(x - gamma mean_i Q(g_i)), where g_i is the mean gradient of `batch` drawn f_ij.

    D. Alistarh et al., "QSGD" (NeurIPS 2017), with any compressor.
    """

    def theory(self) -> Theory:
        """For convex f_ij and unbiased compressors, whatever the batch:

            gamma = 1 / (L + 2 (omega + 1) L_max / n),
            E|x^k - x*|^2 <= (1 - gamma mu)^k |x^0 - x*|^2
                             + gamma/mu 2 (omega + 1)/n mean_ij |grad f_ij(x*)|^2.

        As for `Dcgd`, with A = L + 2 (omega + 1) L_max / n.
        """
        self._require_unbiased()
        problem = self.problem
        gamma = 1 / (problem.L + 2 * (self.omega + 1) * problem.L_max / problem.workers)
        return Theory(gamma, gamma * problem.mu if problem.mu else None)
