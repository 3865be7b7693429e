"""Gradient descent whose workers send whole gradients: what compressed methods compete with."""

from __future__ import annotations

from typing import Any

from sparsewire.optimize.methods.method import Method
from sparsewire.optimize.methods.network import Network
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Problem


def theory(problem: Problem) -> Theory:
    """Proximal gradient descent on a smooth and convex f.

    |x - x*|^2 shrinks by 1 - rate per step: Y. Nesterov, "Introductory Lectures on Convex
    Optimization" (2004), Theorem 2.1.15; the proximal step does not expand distances. Without
    strong convexity gamma = 1/L, and there is no rate.
    """
    if problem.mu <= 0:
        return Theory(1 / problem.L)
    gamma = 2 / (problem.mu + problem.L)
    return Theory(gamma, gamma**2 * problem.mu * problem.L)


class Gd(Method):
    """x = prox(x - gamma mean_i grad f_i(x))."""

    proximal = True

    def __init__(self, problem: Problem, network: Network, **options: Any) -> None:
        super().__init__(problem, network, (), **options)

    def _theory(self) -> Theory:
        return theory(self.problem)

    def _step(self) -> None:
        gradient = self._send_exactly(self._gradients()).mean(axis=0)
        self.x = self.problem.prox(self.x - self.gamma * gradient, self.gamma)
