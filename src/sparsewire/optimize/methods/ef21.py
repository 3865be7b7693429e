"""EF21: each worker compresses how far its gradient is from an estimate that all know."""

from __future__ import annotations

import math
from typing import ClassVar

from sparsewire.optimize.methods.error_feedback import ErrorFeedback
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Problem


def theory(problem: Problem, contraction: float) -> Theory:
    """With theta = 1 - sqrt(1 - a), b = (1 - a) / theta, and M^2 = mean_i L_i^2:

        gamma = 1 / (L + M sqrt(b / theta))                                   (Theorem 1, any f),
        gamma = min{ 1 / (L + M sqrt(2 b / theta)), theta / (2 mu) }, rate = gamma mu  (Theorem 2).

    P. Richtarik, I. Sokolov and I. Fatkhullin, "EF21" (NeurIPS 2021). Theorem 2 asks for the
    Polyak-Lojasiewicz condition only, which strong convexity implies; its Lyapunov function is
    f(x) - min f plus a multiple of mean_i |g_i - grad f_i(x)|^2.
    """
    theta = 1 - math.sqrt(1 - contraction)
    ratio = (1 - contraction) / theta**2
    mean_smoothness = problem.L_rms
    if problem.mu <= 0:
        return Theory(1 / (problem.L + mean_smoothness * math.sqrt(ratio)))
    gamma = 1 / (problem.L + mean_smoothness * math.sqrt(2 * ratio))
    gamma = min(gamma, theta / (2 * problem.mu))
    return Theory(gamma, gamma * problem.mu)


def nonconvex_bound(
    gamma: float, contraction: float, decrease: float, first_error: float, steps: int
) -> float:
    """A bound on the mean of E|grad f(x^k)|^2 over the first `steps` (EF21, Theorem 1).

    `decrease` is at least f(x^0) - min f; `first_error` is mean_i |g_i^0 - grad f_i(x^0)|^2, at
    most (1 - a) mean_i |grad f_i(x^0)|^2 in expectation.
    """
    theta = 1 - math.sqrt(1 - contraction)
    return (2 * decrease / gamma + first_error / theta) / steps


class Ef21(ErrorFeedback):
    """Worker i sends C(grad f_i(x) - g_i), by which g_i moves; x moves along the mean of all g_i.

    The estimates start at 0, so that g_i is C(grad f_i(x^0)) after the first message.
    """

    saved: ClassVar[tuple[str, ...]] = ("g", "mean_g")

    def _begin(self) -> None:
        self.g = self._zeros()
        """The estimates of the local workers: shape (local, dimension)."""
        self.mean_g: Floats = self.g[0].copy()
        """The server's copy of their mean over all workers."""

    def _theory(self) -> Theory:
        self._require_contraction()
        return theory(self.problem, self.contraction)

    def _step(self) -> None:
        changes = self._send(self._targets() - self.g)
        self.g = self.g + self._own(changes)
        self.mean_g = self.mean_g + changes.mean(axis=0)
        self.x = self.x - self.gamma * self.mean_g

    def _targets(self) -> Floats:
        """What the local workers' estimates should become: shape (local, dimension)."""
        return self._gradients()
