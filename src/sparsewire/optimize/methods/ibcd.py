"""IBCD: gradient descent along blocks of the gradients, which each worker draws by itself."""

from __future__ import annotations

from sparsewire.optimize.methods.block_method import BlockMethod
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Problem


def theory(problem: Problem, tau: float) -> Theory:
    """Where grad f_i(x*) = 0 for all i, and f_i are convex: with L the largest L_i,

        gamma = n / (2 L (tau n + 2 (1 - tau))),
        E|x^k - x*|^2 <= (1 - gamma tau mu)^k |x^0 - x*|^2.

    K. Mishchenko, F. Hanzely and P. Richtarik (2020), the theorem on IBCD. Its proof needs two
    moments of the blocks only, E x_U = tau x and E|x_U|^2 = tau |x|^2, with U independent across
    workers; so it holds for Bernoulli blocks as well. With tau = 1/n it is within a constant
    factor of gradient descent, for 1/n of the messages.
    """
    n = problem.workers
    gamma = n / (2 * max(problem.L_i) * (tau * n + 2 * (1 - tau)))
    return Theory(gamma, gamma * tau * problem.mu if problem.mu else None)


class Ibcd(BlockMethod):
    """x = x - gamma mean_i grad f_i(x)_{U_i}.

    Where workers disagree at the solution, their blocks do not cancel there and it stalls at a
    floor: see `Isega` for a method that does not.
    """

    def _theory(self) -> Theory:
        return theory(self.problem, self.tau)

    def _step(self) -> None:
        sent, _ = self._send_blocks(self._gradients())
        self.x = self.x - self.gamma * sent.mean(axis=0)
