"""Distributed compressed gradient descent: each worker sends its compressed gradient."""

from __future__ import annotations

from sparsewire.optimize.methods.method import Method
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Problem


def theory(problem: Problem, omega: float) -> Theory:
    """For convex f_i and unbiased compressors, with L_i the largest of the workers:

        gamma = 1 / (L + 2 omega L_i / n),
        E|x^k - x*|^2 <= (1 - gamma mu)^k |x^0 - x*|^2 + gamma/mu 2 omega/n mean_i |grad f_i(x*)|^2.

    E. Gorbunov, F. Hanzely and P. Richtarik, "A unified theory of SGD" (AISTATS 2020), Theorem 4.1
    with A = L + 2 omega L_i / n. The second term is the floor at which the method stalls.
    """
    gamma = 1 / (problem.L + 2 * omega * max(problem.L_i) / problem.workers)
    return Theory(gamma, gamma * problem.mu if problem.mu else None)


class Dcgd(Method):
    """x = prox(x - gamma mean_i Q(grad f_i(x))).

    With a biased compressor there is no theory: pass `gamma`, and expect it to diverge.
    """

    proximal = True

    def _theory(self) -> Theory:
        self._require_unbiased()
        return theory(self.problem, self.omega)

    def _step(self) -> None:
        gradient = self._send(self._estimates()).mean(axis=0)
        self.x = self.problem.prox(self.x - self.gamma * gradient, self.gamma)

    def _estimates(self) -> Floats:
        """What the local workers send, before compression: shape (local, dimension)."""
        return self._gradients()
