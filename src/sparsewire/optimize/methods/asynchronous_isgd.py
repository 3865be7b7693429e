"""Asynchronous ISGD: gradients may be taken at points that are some rounds old."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsewire.optimize.methods.isgd import Isgd
from sparsewire.optimize.methods.isgd import theory as synchronous_theory
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Problem


def theory(problem: Problem, tau: float, delay: int) -> Theory:
    """Convex f_ij, and no gradient older than D = `delay` rounds: with L = L_max, b = L (tau + 2/n)

        gamma = min{ 2 / (b + sqrt(b^2 + 8 b tau L D^2)), 1 / (2 tau mu D) },
        E|x^k - x*|^2 <= (1 - gamma tau mu)^k |x^0 - x*|^2 + 2 c gamma s / (n mu),

    where c = 1 + 2 gamma tau L D^2, s is that of `isgd.theory`, and gamma c <= 1/b. For large D and
    tau >= 1/n the step gamma tau is of order 1 / (L D).

    Derived here. Let y_i be the point of g_i, and B_i = f_i(x*) - f_i(y_i) - <grad f_i(y_i),
    x* - y_i>. By convexity and smoothness

        <grad f_i(y_i), x - x*> >= f_i(x) - f_i(x*) + B_i - L/2 |x - y_i|^2,
        E|G|^2 <= 2 b tau mean_i B_i + 2 tau s / n,
        |x - y_i|^2 <= D gamma^2 (sum of |G|^2 over the last D rounds).

    Summed up with weights (1 - gamma tau mu)^-k, which at most double within D rounds, what |G|^2
    costs now and in the D rounds to come is c gamma^2; it is paid for by 2 gamma tau mean_i B_i.
    """
    if delay == 0:
        return synchronous_theory(problem, tau)
    smoothness = problem.L_max
    b = smoothness * (tau + 2 / problem.workers)
    gamma = 2 / (b + math.sqrt(b**2 + 8 * b * tau * smoothness * delay**2))
    if problem.mu <= 0:
        return Theory(gamma)
    gamma = min(gamma, 1 / (2 * tau * problem.mu * delay))
    return Theory(gamma, gamma * tau * problem.mu)


class AsynchronousIsgd(Isgd):
    """x^{k+1} = x^k - gamma mean_i (g_i(x^{k - d_i}))_{U_i}, with ages 0 <= d_i <= `delay`.

    Rounds are collective here, so ages are drawn, uniformly and by each worker: a model of workers
    that go on computing while others are late.
    """

    saved = (*Isgd.saved, "history")

    def __init__(self, *parts: Any, delay: int = 1, **options: Any) -> None:
        """Raises ValueError for a negative delay."""
        if delay < 0:
            raise ValueError(f"delay must be 0 or more, not {delay}")
        self.delay = delay
        super().__init__(*parts, **options)
        self.history: Floats = np.tile(self.x, (delay + 1, 1))
        """The last points, the newest first: shape (delay + 1, dimension)."""

    def _theory(self) -> Theory:
        return theory(self.problem, self.tau, self.delay)

    def _step(self) -> None:
        super()._step()
        self.history = np.vstack([self.x, self.history[:-1]])

    def _estimates(self) -> Floats:
        drawn = self._draw(self.batch)
        ages = [draws.generator.integers(self.delay + 1) for draws in self._samples]
        estimates = self._zeros()
        for row, (i, age) in enumerate(zip(self.network.local, ages, strict=True)):
            js = drawn[row : row + 1]
            estimates[row] = self.problem.batch_gradients([i], js, self.history[age])[0]
        self.gradients += drawn.size
        return estimates
