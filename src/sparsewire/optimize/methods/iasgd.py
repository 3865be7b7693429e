"""IASGD: Nesterov's acceleration of ISGD, where all gradients vanish at the solution."""

from __future__ import annotations

import math
from typing import Any

from sparsewire.optimize.methods.block_method import BlockMethod
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Problem


def theory(
    problem: Problem, tau: float, growth: float | None = None, *, sampled: bool = False
) -> Theory:
    """Strongly convex f, and gradients that grow together: mean_i E|g_i|^2 <= growth |grad f|^2.

        rho = 1 + (1/tau - 1) growth / n    (where g_i is drawn: 1 + growth / (tau n)),
        gamma = 1 / (rho L),    rate = sqrt(mu / L) / rho.

    `growth` is 1 where workers have equal data and do not sample. By default it is what follows
    from grad f_ij(x*) = 0 for all, max L_i / mu, or L_max / mu where g_i is drawn; that is safe,
    but often far too much, and acceleration pays only while rho is below sqrt(L / mu).

    Derived here, after S. Vaswani, F. Bach and M. Schmidt, "Fast and faster convergence of SGD for
    over-parameterized models" (AISTATS 2019). For G = mean_i (g_i)_{U_i} / tau, E|G|^2 is at most
    rho |grad f(y)|^2. With theta = sqrt(mu gamma / rho) and any gamma <= 1 / (rho L), the method
    shrinks f(x) - f* + mu/2 |z - x*|^2 by 1 - theta per step in expectation: x loses at least
    gamma/2 |grad f(y)|^2 against f(y), just what the second moment of G adds to |z - x*|^2.
    """
    if problem.mu <= 0:
        raise ValueError("acceleration is for strongly convex functions: add an l2 term")
    if growth is None:
        growth = (problem.L_max if sampled else max(problem.L_i)) / problem.mu
    rho = 1 + growth * (1 / tau - (not sampled)) / problem.workers
    return Theory(1 / (rho * problem.L), math.sqrt(problem.mu / problem.L) / rho)


class Iasgd(BlockMethod):
    """With G the mean of the workers' blocks of gradients at y, divided by tau:

        y = (x + theta z) / (1 + theta),    x = y - gamma G,
        z = (1 - theta) z + theta y - theta/mu G.

    Where gradients do not vanish at the solution it stalls at a floor. `AsynchronousIsgd` is the
    variant with delays.
    """

    saved = ("z",)

    def __init__(
        self, *parts: Any, batch: int | None = None, growth: float | None = None, **options: Any
    ) -> None:
        """`batch` components are drawn per worker and step; all are used unless given.

        Raises ValueError where f is not strongly convex.
        """
        self.batch, self.growth = batch, growth
        super().__init__(*parts, **options)
        rho = 1 / (self._theory().gamma * self.problem.L)
        self.theta = math.sqrt(self.problem.mu * self.gamma / rho)

    def _theory(self) -> Theory:
        return theory(self.problem, self.tau, self.growth, sampled=self.batch is not None)

    def _begin(self) -> None:
        self.z: Floats = self.x.copy()

    def _step(self) -> None:
        theta = self.theta
        y = (self.x + theta * self.z) / (1 + theta)
        sent, _ = self._send_blocks(self._estimates(y))
        gradient = sent.mean(axis=0) / self.tau
        self.x = y - self.gamma * gradient
        self.z = (1 - theta) * self.z + theta * y - theta / self.problem.mu * gradient

    def _estimates(self, y: Floats) -> Floats:
        """Gradients of the local workers at y: shape (local, dimension)."""
        if self.batch is not None:
            return self._batch_gradients(self._draw(self.batch), y)
        self.gradients += sum(self.problem.m[i] for i in self.network.local)
        return self.problem.gradients(self.network.local, y)
