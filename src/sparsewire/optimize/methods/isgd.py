"""ISGD: stochastic gradient descent along blocks that each worker draws by itself."""

from __future__ import annotations

from sparsewire.optimize.methods.block_method import BlockMethod
from sparsewire.optimize.methods.sampled import Sampled
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Problem


def theory(problem: Problem, tau: float) -> Theory:
    """gamma = 1 / (tau L + 2 L_max / n), whatever the batch. For convex f_ij

        E|x^k - x*|^2 <= (1 - gamma tau mu)^k |x^0 - x*|^2 + 2 gamma s / (n mu),

    where s = mean_ij |grad f_ij(x*)|^2. For any smooth f, the mean over K steps of E|grad f(x)|^2
    is at most

        2 (f(x^0) - min f) / (gamma tau K) + gamma L V / n,

    where V bounds mean_i E|g_i - grad f(x)|^2: the noise of a draw, and how workers differ.

    Both are derived here. For G = mean_i (g_i)_{U_i} with independent U_i, E G = tau grad f, and

        E|G|^2 <= tau^2 |grad f|^2 + tau/n mean_i E|g_i|^2.

    Convex: E|g_i|^2, averaged over i, is at most 4 L_max (f(x) - f*) + 2 s, and |grad f|^2 at most
    2 L (f(x) - f*); with that gamma, gamma^2 E|G|^2 leaves nothing of -2 gamma tau (f(x) - f*) but
    the noise. In general it is |grad f|^2 + V, and the descent lemma holds for
    gamma <= 1 / (L (tau + 1/n)), which the step size above satisfies as L <= L_max.
    """
    gamma = 1 / (tau * problem.L + 2 * problem.L_max / problem.workers)
    return Theory(gamma, gamma * tau * problem.mu if problem.mu else None)


class Isgd(Sampled, BlockMethod):
    """x = x - gamma mean_i (g_i)_{U_i}, where g_i is the mean gradient of `batch` drawn f_ij.

    K. Mishchenko, F. Hanzely and P. Richtarik (2020), where f may be nonconvex as well.
    """

    def _theory(self) -> Theory:
        return theory(self.problem, self.tau)

    def _step(self) -> None:
        sent, _ = self._send_blocks(self._estimates())
        self.x = self.x - self.gamma * sent.mean(axis=0)
