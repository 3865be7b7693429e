"""Independent block methods: workers draw blocks of their gradients by themselves, and send those.

IBCD, IBGD, ISGD, ISGD with delays, and IASGD. K. Mishchenko, F. Hanzely and P. Richtarik, "99% of
worker-master communication in distributed optimization is not needed" (UAI 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsewire.compress.message import Reader
from sparsewire.compress.seeded import Bernoulli, RandK, SeededSparsifier
from sparsewire.compress.sparsifier import Kept
from sparsewire.tools.optimize.methods.method import Method, Sampled, Theory
from sparsewire.tools.optimize.methods.network import Network
from sparsewire.tools.optimize.problems.problem import Floats, Problem

Booleans = npt.NDArray[np.bool_]


def one_of_n(problem: Problem) -> SeededSparsifier:
    """A sparsifier with as many blocks as workers, or a few less for equal sizes; each sends one.

    Then tau = 1/n, which costs hardly any steps by the theory of these methods.
    """
    block = -(-problem.dimension // problem.workers)
    return RandK(problem.dimension, 1, block, np.float64)


class BlockMethod(Method):
    """A method whose workers send x_U for random blocks U, independently of each other.

    Which blocks those are follows from a seed in the message, so no indices are sent. Only what
    goes to the server is compressed: the mean that all go on with is dense.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        sparsifier: SeededSparsifier | None = None,
        **options: Any,
    ) -> None:
        """`sparsifier` draws the blocks of each worker; `_default` unless given.

        `options` are those of `Method`.
        """
        self.sparsifier = self._default(problem) if sparsifier is None else sparsifier
        super().__init__(problem, network, self.sparsifier, **options)

    @property
    def tau(self) -> float:
        """The probability of a block to be sent by a worker."""
        return 1 / self.sparsifier.scale

    def _default(self, problem: Problem) -> SeededSparsifier:
        return one_of_n(problem)

    def _send_blocks(self, vectors: Floats) -> tuple[Floats, Booleans]:
        """Send blocks of a vector (local, dimension) for each local worker; collective.

        Returns what all workers sent, without the sparsifier's scale and 0 elsewhere, and masks of
        what they sent: both of shape (workers, dimension).
        """
        codes, payloads = self._send_codes(vectors)
        shape = self.network.workers, self.problem.dimension
        sent, masks = np.zeros(shape), np.zeros(shape, np.bool_)
        for i, payload in enumerate(payloads):
            choice, values = codes[i] if i in codes else self._unpacked(payload)
            positions = self.sparsifier.blocks.elements(choice.blocks)
            masks[i, positions], sent[i, positions] = True, values
        return sent, masks

    def _unpacked(self, payload: bytes) -> Kept:
        reader = Reader(payload)
        code = self.sparsifier.unpack(reader)
        reader.end()
        return code


class Ibcd(BlockMethod):
    """Gradient descent along blocks: x = x - gamma mean_i grad f_i(x)_{U_i}.

    Where workers disagree at the solution, their blocks do not cancel there and it stalls at a
    floor: see `Isega` for a method that does not.
    """

    def theory(self) -> Theory:
        """For convex f_i with grad f_i(x*) = 0 for all i, with L the largest L_i:

            gamma = n / (2 L (tau n + 2 (1 - tau))),
            E|x^k - x*|^2 <= (1 - gamma tau mu)^k |x^0 - x*|^2.

        The theorem on IBCD of the paper. Its proof needs two moments of the blocks only,
        E x_U = tau x and E|x_U|^2 = tau |x|^2, with U independent across workers; so it holds for
        Bernoulli blocks as well. With tau = 1/n it is within a constant factor of gradient descent,
        for 1/n of the messages.
        """
        problem, n, tau = self.problem, self.problem.workers, self.tau
        gamma = n / (2 * max(problem.L_i) * (tau * n + 2 * (1 - tau)))
        return Theory(gamma, gamma * tau * problem.mu if problem.mu else None)

    def _step(self) -> None:
        sent, _ = self._send_blocks(self._estimates())
        self.x = self.x - self.gamma * sent.mean(axis=0)


class Ibgd(Ibcd):
    """IBCD whose workers toss a coin for every block: U_i holds each with probability tau.

    Messages differ in length, and may hold no block at all. By default tau is 1/n, and every
    coordinate is a block of its own.
    """

    def _default(self, problem: Problem) -> SeededSparsifier:
        return Bernoulli(problem.dimension, 1 / problem.workers, 1, np.float64)


class Isgd(Sampled, Ibcd):
    """x = x - gamma mean_i (g_i)_{U_i}, where g_i is the mean gradient of `batch` drawn f_ij.

    f may be nonconvex as well.
    """

    def theory(self) -> Theory:
        """gamma = 1 / (tau L + 2 L_max / n), whatever the batch. For convex f_ij

            E|x^k - x*|^2 <= (1 - gamma tau mu)^k |x^0 - x*|^2 + 2 gamma s / (n mu),

        where s = mean_ij |grad f_ij(x*)|^2. For any smooth f, the mean over K steps of
        E|grad f(x)|^2 is at most

            2 (f(x^0) - min f) / (gamma tau K) + gamma L V / n,

        where V bounds mean_i E|g_i - grad f(x)|^2: the noise of a draw, and how workers differ.

        Both are derived here. For G = mean_i (g_i)_{U_i} with independent U_i, E G = tau grad f,
        and

            E|G|^2 <= tau^2 |grad f|^2 + tau/n mean_i E|g_i|^2.

        Convex: E|g_i|^2, averaged over i, is at most 4 L_max (f(x) - f*) + 2 s, and |grad f|^2 at
        most 2 L (f(x) - f*); with that gamma, gamma^2 E|G|^2 leaves nothing of
        -2 gamma tau (f(x) - f*) but the noise. In general it is |grad f|^2 + V, and the descent
        lemma holds for gamma <= 1 / (L (tau + 1/n)), which the step size above satisfies as
        L <= L_max.
        """
        problem, tau = self.problem, self.tau
        gamma = 1 / (tau * problem.L + 2 * problem.L_max / problem.workers)
        return Theory(gamma, gamma * tau * problem.mu if problem.mu else None)


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

    def theory(self) -> Theory:
        """Convex f_ij, and no gradient older than D = `delay` rounds: with L = L_max and
        b = L (tau + 2/n),

            gamma = min{ 2 / (b + sqrt(b^2 + 8 b tau L D^2)), 1 / (2 tau mu D) },
            E|x^k - x*|^2 <= (1 - gamma tau mu)^k |x^0 - x*|^2 + 2 c gamma s / (n mu),

        where c = 1 + 2 gamma tau L D^2, s is that of `Isgd.theory`, and gamma c <= 1/b. For large D
        and tau >= 1/n the step gamma tau is of order 1 / (L D).

        Derived here. Let y_i be the point of g_i, and B_i = f_i(x*) - f_i(y_i) - <grad f_i(y_i),
        x* - y_i>. By convexity and smoothness

            <grad f_i(y_i), x - x*> >= f_i(x) - f_i(x*) + B_i - L/2 |x - y_i|^2,
            E|G|^2 <= 2 b tau mean_i B_i + 2 tau s / n,
            |x - y_i|^2 <= D gamma^2 (sum of |G|^2 over the last D rounds).

        Summed up with weights (1 - gamma tau mu)^-k, which at most double within D rounds, what
        |G|^2 costs now and in the D rounds to come is c gamma^2; it is paid for by
        2 gamma tau mean_i B_i.
        """
        if self.delay == 0:
            return super().theory()
        problem, tau, smoothness = self.problem, self.tau, self.problem.L_max
        b = smoothness * (tau + 2 / problem.workers)
        gamma = 2 / (b + math.sqrt(b**2 + 8 * b * tau * smoothness * self.delay**2))
        if problem.mu <= 0:
            return Theory(gamma)
        gamma = min(gamma, 1 / (2 * tau * problem.mu * self.delay))
        return Theory(gamma, gamma * tau * problem.mu)

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


class Iasgd(BlockMethod):
    """Nesterov's acceleration of ISGD, where all gradients vanish at the solution.

    With G the mean of the workers' blocks of gradients at y, divided by tau:

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
        rho = 1 / (self.theory().gamma * self.problem.L)
        self.theta = math.sqrt(self.problem.mu * self.gamma / rho)

    def theory(self) -> Theory:
        """Strongly convex f, and gradients that grow together:

            mean_i E|g_i|^2 <= growth |grad f|^2,
            rho = 1 + (1/tau - 1) growth / n    (where g_i is drawn: 1 + growth / (tau n)),
            gamma = 1 / (rho L),    rate = sqrt(mu / L) / rho.

        `growth` is 1 where workers have equal data and do not sample. By default it is what follows
        from grad f_ij(x*) = 0 for all, max L_i / mu, or L_max / mu where g_i is drawn; that is
        safe, but often far too much, and acceleration pays only while rho is below sqrt(L / mu).

        Derived here, after S. Vaswani, F. Bach and M. Schmidt, "Fast and faster convergence of SGD
        for over-parameterized models" (AISTATS 2019). For G = mean_i (g_i)_{U_i} / tau, E|G|^2 is
        at most rho |grad f(y)|^2. With theta = sqrt(mu gamma / rho) and any gamma <= 1 / (rho L),
        the method shrinks f(x) - f* + mu/2 |z - x*|^2 by 1 - theta per step in expectation: x loses
        at least gamma/2 |grad f(y)|^2 against f(y), just what the second moment of G adds to
        |z - x*|^2.
        """
        problem, growth, sampled = self.problem, self.growth, self.batch is not None
        if problem.mu <= 0:
            raise ValueError("acceleration is for strongly convex functions: add an l2 term")
        if growth is None:
            growth = (problem.L_max if sampled else max(problem.L_i)) / problem.mu
        rho = 1 + growth * (1 / self.tau - (not sampled)) / problem.workers
        return Theory(1 / (rho * problem.L), math.sqrt(problem.mu / problem.L) / rho)

    def _begin(self) -> None:
        self.z: Floats = self.x.copy()

    def _step(self) -> None:
        theta = self.theta
        y = (self.x + theta * self.z) / (1 + theta)
        sent, _ = self._send_blocks(self._gradients(y, self.batch))
        gradient = sent.mean(axis=0) / self.tau
        self.x = y - self.gamma * gradient
        self.z = (1 - theta) * self.z + theta * y - theta / self.problem.mu * gradient
