"""MARINA: workers compress how their gradient changed, and now and then send it in full."""

from __future__ import annotations

import math
from typing import Any

from sparsewire.tools.optimize.methods.method import Method, Theory
from sparsewire.tools.optimize.problems.problem import Floats


class Marina(Method):
    """The estimate g becomes mean_i grad f_i(x) with probability p, and otherwise moves by
    mean_i Q(grad f_i(x) - grad f_i(y)), where y is the point before x. x moves along g.

    The coin is shared by all workers. The first step sends full gradients.
    """

    saved = ("g", "previous")

    def __init__(self, *parts: Any, probability: float | None = None, **options: Any) -> None:
        """Raises ValueError for biased compressors, and for a probability outside (0, 1]."""
        if probability is not None and not 0 < probability <= 1:
            raise ValueError(f"probability must be in (0, 1], not {probability}")
        self._chosen = probability
        super().__init__(*parts, **options)
        self.probability = self.theory().probability

    def theory(self) -> Theory:
        """With M^2 = mean_i L_i^2, and p = 1 / (omega + 1) unless given:

            gamma = 1 / (M (1 + sqrt((1 - p) omega / (p n))))                        (Theorem 2.1),
            gamma = min{ 1 / (M (1 + sqrt(2 (1 - p) omega / (p n)))), p / (2 mu) },
            rate = gamma mu                                                          (Theorem 2.2).

        E. Gorbunov, K. Burlachenko, Z. Li and P. Richtarik, "MARINA" (ICML 2021). The second asks
        for the Polyak-Lojasiewicz condition only; its Lyapunov function is f(x) - min f plus a
        multiple of the estimate's squared error. With the default p the first is
        1 / (M (1 + omega / sqrt(n))), and by it the mean of E|grad f(x^k)|^2 over K steps is at
        most 2 (f(x^0) - min f) / (gamma K).
        """
        problem, omega = self.problem, self.omega
        p = 1 / (omega + 1) if self._chosen is None else self._chosen
        variance = (1 - p) * omega / (p * problem.workers)
        smoothness = problem.L_rms
        if problem.mu <= 0:
            return Theory(1 / (smoothness * (1 + math.sqrt(variance))), probability=p)
        gamma = min(1 / (smoothness * (1 + math.sqrt(2 * variance))), p / (2 * problem.mu))
        return Theory(gamma, gamma * problem.mu, probability=p)

    def _begin(self) -> None:
        self._require_unbiased()
        self.g: Floats | None = None
        """The estimate of the gradient of f."""
        self.previous: Floats | None = None
        """The local workers' gradients at the point before: shape (local, dimension)."""

    def _step(self) -> None:
        gradients = self._estimates()
        in_full = self._coin.generator.random() < self.probability
        if self.g is None or self.previous is None or in_full:
            self.g = self._send_exactly(gradients).mean(axis=0)
        else:
            self.g = self.g + self._send(gradients - self.previous).mean(axis=0)
        self.previous = gradients
        self.x = self.x - self.gamma * self.g
