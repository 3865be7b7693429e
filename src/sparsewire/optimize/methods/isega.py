"""ISEGA: DIANA with random blocks, which takes heterogeneous data and an l1 term."""

from __future__ import annotations

from typing import Any

from sparsewire.compress.seeded import SeededSparsifier
from sparsewire.optimize.methods.block_method import one_of_n
from sparsewire.optimize.methods.diana import Diana
from sparsewire.optimize.methods.network import Network
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Problem


def theory(problem: Problem, tau: float) -> Theory:
    """Convex f_i, strongly convex f, any R: with L the largest L_i, and alpha = tau,

        gamma = min{ 1 / (4 L (1 + 1/(n tau))), 1 / (mu/tau + 4 L/(n tau)) },    rate = gamma mu.

    K. Mishchenko, F. Hanzely and P. Richtarik (2020), the theorem on ISEGA.
    """
    smoothness, spread = max(problem.L_i), 1 / (problem.workers * tau)
    whole = 4 * smoothness * (1 + spread)
    gamma = 1 / max(whole, problem.mu / tau + 4 * smoothness * spread)
    return Theory(gamma, gamma * problem.mu if problem.mu else None, alpha=tau)


class Isega(Diana):
    """g_i = h_i + (grad f_i(x) - h_i)_{U_i} / tau,    h_i = h_i + tau (g_i - h_i),

        x = prox(x - gamma mean_i g_i).

    Since x_U / tau is an unbiased compressor of omega = 1/tau - 1, this is DIANA with
    alpha = 1/(omega + 1); only the step size comes from another theorem.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        sparsifier: SeededSparsifier | None = None,
        **options: Any,
    ) -> None:
        blocks = one_of_n(problem) if sparsifier is None else sparsifier
        super().__init__(problem, network, blocks, **options)

    def _theory(self) -> Theory:
        return theory(self.problem, 1 / (self.omega + 1))
