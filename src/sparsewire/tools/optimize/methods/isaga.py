"""ISAGA: SAGA along blocks that each worker draws by itself, with shared or distributed data."""

from __future__ import annotations

import numpy as np

from sparsewire.tools.optimize.methods.blocks import BlockMethod
from sparsewire.tools.optimize.methods.method import Theory
from sparsewire.tools.optimize.problems.problem import Floats, Integers


class Isaga(BlockMethod):
    """ISAGA with shared data: every worker has all N components psi_j, and draws different ones.

        x = x - gamma mean_i (grad psi_{j_i}(x) - a_{j_i} + mean_j a_j)_{U_i},

    and a_{j_i} becomes grad psi_{j_i}(x) on U_i. Everybody keeps the table a, so a worker sends
    how its row changes. Memory: N vectors on each process.

    Raises ValueError where workers have different numbers of components: f would not be the mean of
    all then.

    Against SAGA that draws one component per step, tau = 1/n costs nothing; against SAGA that
    draws n it may well, where N is large against L / mu.
    """

    saved = ("a", "mean_a")

    def theory(self) -> Theory:
        """N convex components in all: with L = L_max,

            gamma = 1 / (L (3/n + tau)),    rate = min{ gamma tau mu, n tau / (3 N) }.

        With distributed data it needs grad f_i(x*) = 0 for all i, and N is n times the largest m_i.
        With tau = 1/n the step gamma tau is 1/(4 L), that of SAGA with one component per step.

        K. Mishchenko, F. Hanzely and P. Richtarik (2020), the theorem on ISAGA. Where every
        component is strongly convex, as with an l2 term, and mu <= L/5, it follows from

            <grad f(x), x - x*> >= mu L/(mu + L) |x - x*|^2 + V/(mu + L),
            E|G|^2 <= (tau^2 + tau/n (1 + b)) V + tau/n (1 + 1/b) S

        for the Lyapunov function |x - x*|^2 + 3/2 (1 + 1/b) gamma^2 N/n^2 S with b = sqrt(3/2),
        where V = mean_j |grad psi_j(x) - grad psi_j(x*)|^2 and S = mean_j |a_j - grad psi_j(x*)|^2.
        """
        problem, tau = self.problem, self.tau
        gamma = 1 / (problem.L_max * (3 / problem.workers + tau))
        if problem.mu <= 0:
            return Theory(gamma)
        return Theory(gamma, min(gamma * tau * problem.mu, tau / (3 * max(problem.m))))

    def _begin(self) -> None:
        problem = self.problem
        if len(set(problem.m)) != 1:
            raise ValueError("shared data must be cut into equal parts")
        self.a: Floats = np.zeros((sum(problem.m), problem.dimension))
        """The gradient table: shape (N, dimension)."""
        self.mean_a: Floats = np.zeros(problem.dimension)

    def _step(self) -> None:
        js = self._coin.generator.choice(len(self.a), self.problem.workers, replace=False)
        own = js[self._local]
        changes, masks = self._send_blocks(self._component_gradients(own) - self.a[own])
        direction = changes + masks * self.mean_a
        self.x = self.x - self.gamma * direction.mean(axis=0)
        self.a[js] += changes
        self.mean_a = self.mean_a + changes.sum(axis=0) / len(self.a)

    def _component_gradients(self, js: Integers) -> Floats:
        """Gradients of any workers' components at x: shape (len(js), dimension)."""
        self.gradients += len(js)
        owners, numbers = np.divmod(js, self.problem.m[0])
        return self.problem.batch_gradients(owners.tolist(), numbers[:, np.newaxis], self.x)


class DistributedIsaga(Isaga):
    """ISAGA with distributed data: worker i draws one of its own m_i components.

        x = x - gamma mean_i (grad f_ij(x) - a_ij + mean_j a_ij)_{U_i},

    and a_ij becomes grad f_ij(x) on U_i. Where grad f_i(x*) is not 0 it stalls at a floor. Memory:
    m_i vectors per worker.
    """

    def _begin(self) -> None:
        self._rows = np.arange(len(self._local))
        self._sizes = np.array(self.problem.m)[self._local, np.newaxis]
        self.a: Floats = np.zeros((len(self._local), self._sizes.max(), self.problem.dimension))
        """The local workers' gradient tables: shape (local, largest m_i, dimension)."""
        self.mean_a = self._zeros()

    def _step(self) -> None:
        js = self._draw(1)
        drawn = self._rows, js[:, 0]
        change = self._batch_gradients(js, self.x) - self.a[drawn]
        sent, masks = self._send_blocks(change + self.mean_a)
        self.x = self.x - self.gamma * sent.mean(axis=0)
        change *= masks[self._local]
        self.a[drawn] += change
        self.mean_a = self.mean_a + change / self._sizes
