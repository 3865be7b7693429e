"""DIANA: workers compress the difference between their gradient and a shift that learns it.

VR-DIANA takes stochastic gradients whose variance vanishes at the solution; ISEGA random blocks.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sparsewire.compress.seeded import SeededSparsifier
from sparsewire.tools.optimize.methods.blocks import one_of_n
from sparsewire.tools.optimize.methods.method import Method, Sampled, Theory
from sparsewire.tools.optimize.methods.network import Network
from sparsewire.tools.optimize.problems.problem import Floats, Integers, Problem


def nonconvex_theory(smoothness: float, m: int, omega: float, n: int) -> Theory:
    """Any smooth f without R, for DIANA (m = 1) and VR-DIANA (m components per worker).

    gamma = 1 / (10 L (1 + omega/n)^(1/2) (m^(2/3) + omega + 1)), alpha = 1 / (omega + 1), and the
    mean of E|grad f(x^k)|^2 over K steps is at most 4 (f(x^0) - min f) / (gamma K). S. Horvath et
    al. (2019), the theorem on VR-DIANA for nonconvex f.
    """
    spread = math.sqrt(1 + omega / n) * (m ** (2 / 3) + omega + 1)
    return Theory(1 / (10 * smoothness * spread), alpha=1 / (omega + 1))


class Diana(Method):
    """Worker i sends Q(g_i - h_i), and everybody moves h_i by alpha times that.

    The server steps along the mean of h_i + Q(g_i - h_i), with momentum `beta`:

        v = beta v + mean_i (h_i + Q_i),    x = prox(x - gamma v).

    The theory is for beta = 0 and unbiased compressors. K. Mishchenko et al., "Distributed learning
    with compressed gradient differences" (2019).
    """

    proximal = True
    saved: ClassVar[tuple[str, ...]] = ("h", "mean_h", "v")

    def __init__(
        self, *parts: Any, alpha: float | None = None, beta: float = 0.0, **options: Any
    ) -> None:
        """Raises ValueError for biased compressors, beta outside [0, 1), and beta together with R.

        With momentum the proximal step stands still where R weighs 1 - beta of what it should.
        """
        super().__init__(*parts, **options)
        if not 0 <= beta < 1:
            raise ValueError(f"beta must be in [0, 1), not {beta}")
        if beta and self.problem.l1:
            raise ValueError("momentum takes no l1 term")
        if alpha is not None or beta:
            self.rate = None
        self.alpha = self.theory().alpha if alpha is None else alpha
        self.beta = beta

    def _begin(self) -> None:
        self._require_unbiased()
        self.h = self._zeros()
        """The shifts of the local workers: shape (local, dimension)."""
        self.mean_h: Floats = self.h[0].copy()
        """The server's copy of their mean over all workers."""
        self.v: Floats = self.h[0].copy()

    def theory(self) -> Theory:
        """Convex f_i and strongly convex f: with L the largest L_i, and alpha = 1 / (omega + 1),

            gamma = min{ 2 / ((m + L) (1 + 6 omega / n)), alpha / (2 m) },     rate = gamma m,    or
            gamma = min{ 1 / (L (1 + 6 omega / n)), alpha / (2 mu) },          rate = gamma mu,

        whichever has the higher rate; E Psi^k <= (1 - rate)^k Psi^0, where Psi is |x - x*|^2 plus a
        multiple of mean_i |h_i - grad f_i(x*)|^2. The first is the theorem on DIANA with unbiased
        compressors, for any R, of S. Horvath et al., "Stochastic distributed learning with gradient
        quantization and variance reduction" (2019); every f_i must be strongly convex there, and m
        is the least mu_i, not mu of f.

        The second needs no more than convex f_i. The proof is the same but for one step: it bounds
        G = mean_i |grad f_i(x) - grad f_i(x*)|^2, which enters as gamma^2 (1 + 6 omega / n) G, by L
        times <grad f(x) - grad f(x*), x - x*>, since convex L-smooth gradients are co-coercive (Yu.
        Nesterov, Introductory lectures on convex optimization, theorem 2.1.5). Half of what the
        step gains pays for it, and the other half is at least gamma mu |x - x*|^2.

        Otherwise `nonconvex_theory`.
        """
        problem, omega = self.problem, self.omega
        if problem.mu <= 0:
            return nonconvex_theory(max(problem.L_i), 1, omega, problem.workers)
        alpha = 1 / (omega + 1)
        smoothness, spread = max(problem.L_i), 1 + 6 * omega / problem.workers
        least = min(problem.mu_i)
        of_each = _capped(2 / ((least + smoothness) * spread), least, alpha)
        of_all = _capped(1 / (smoothness * spread), problem.mu, alpha)
        return of_all if of_all.gamma * problem.mu > of_each.gamma * least else of_each

    def _step(self) -> None:
        differences = self._send(self._estimates() - self.h)
        difference = differences.mean(axis=0)
        self.v = self.beta * self.v + (self.mean_h + difference)
        self.h = self.h + self.alpha * self._own(differences)
        self.mean_h = self.mean_h + self.alpha * difference
        self.x = self.problem.prox(self.x - self.gamma * self.v, self.gamma)


def _capped(gamma: float, mu: float, alpha: float) -> Theory:
    """Steps no longer than shifts can follow."""
    gamma = min(gamma, alpha / (2 * mu)) if mu > 0 else gamma
    return Theory(gamma, gamma * mu, alpha)


class _VrDiana(Sampled, Diana):
    """The base of both variants: estimates corrected by gradients at older points (references)."""

    saved: ClassVar[tuple[str, ...]] = (*Diana.saved, "mean_reference")

    def _begin(self) -> None:
        super()._begin()
        self.mean_reference: Floats | None = None
        """The mean of each local worker's reference gradients; set by the first step."""

    def theory(self) -> Theory:
        """Strongly convex f with m components per worker, for both variants: with L = L_max,

            gamma = 1 / (L (1 + 36 (omega + 1) / n)),    alpha = 1 / (omega + 1),    p = 1/m,
            rate = min{ gamma mu, 1 / (2 (omega + 1)), 3 / (8 m) }.

        S. Horvath et al. (2019), the theorem on VR-DIANA for strongly convex f, with the parameters
        of its corollary. Otherwise `nonconvex_theory`. Where workers have different numbers of
        components, m is the largest.
        """
        problem, omega = self.problem, self.omega
        n, m = problem.workers, max(problem.m)
        if problem.mu <= 0:
            general = nonconvex_theory(problem.L_max, m, omega, n)
            return Theory(general.gamma, alpha=general.alpha, probability=1 / m)
        gamma = 1 / (problem.L_max * (1 + 36 * (omega + 1) / n))
        rate = min(gamma * problem.mu, 1 / (2 * (omega + 1)), 3 / (8 * m))
        return Theory(gamma, rate, 1 / (omega + 1), 1 / m)


class VrDianaLsvrg(_VrDiana):
    """VR-DIANA with L-SVRG: all references are at one older point w, which a coin renews.

    The coin is shared by all workers and falls with probability 1/m; w is then the point at which
    the step began. A step costs two component gradients per draw, and m more per worker whenever
    the coin falls. A worker keeps as much as two gradients.
    """

    saved = (*_VrDiana.saved, "w")
    w: Floats | None = None

    def _estimates(self) -> Floats:
        if self.w is None or self.mean_reference is None:
            self.w, self.mean_reference = self.x, self._gradients(self.x)
        js = self._draw(self.batch)
        change = self._batch_gradients(js, self.x) - self._batch_gradients(js, self.w)
        estimates: Floats = change + self.mean_reference
        if self._coin.generator.random() < 1 / max(self.problem.m):
            self.w, self.mean_reference = self.x, self._gradients(self.x)
        return estimates


class VrDianaSaga(_VrDiana):
    """VR-DIANA with SAGA: the reference of a component is the point where it was drawn last.

    A step costs one component gradient per draw. A worker keeps m gradients.
    """

    saved = (*_VrDiana.saved, "table")
    table: Floats | None = None
    """The reference gradients of the local workers' components, one worker after the other."""

    @cached_property
    def _sizes(self) -> Integers:
        """Components of each local worker."""
        return np.array([self.problem.m[i] for i in self.network.local])

    def _estimates(self) -> Floats:
        if self.table is None or self.mean_reference is None:
            self.table, self.mean_reference = self._first_table()
        js = self._draw(self.batch)
        starts = np.cumsum(self._sizes) - self._sizes
        rows = (js + starts[:, np.newaxis]).ravel()
        fresh = self._component_gradients(js)
        change = fresh - self.table[rows]
        per_worker = change.reshape(*js.shape, -1)
        estimates: Floats = per_worker.mean(axis=1) + self.mean_reference
        # A new array, since a state that was taken may share the old one.
        self.mean_reference = self.mean_reference + self._mean_change(js, per_worker)
        self.table[rows] = fresh
        return estimates

    def _first_table(self) -> tuple[Floats, Floats]:
        problem, local = self.problem, self.network.local
        parts = [problem.sample_gradients(i, np.arange(problem.m[i]), self.x) for i in local]
        self.gradients += sum(map(len, parts))
        return np.concatenate(parts), np.stack([part.mean(axis=0) for part in parts])

    def _component_gradients(self, js: Integers) -> Floats:
        """The gradient of every single draw: shape (local x batch, dimension)."""
        self.gradients += js.size
        owners = np.repeat(self._local, js.shape[1])
        return self.problem.batch_gradients(owners.tolist(), js.reshape(-1, 1), self.x)

    def _mean_change(self, js: Integers, change: Floats) -> Floats:
        """The change of local workers' mean references, from changes (local, batch, dimension)."""
        # A component that is drawn twice changes once.
        again = np.triu(js[:, :, np.newaxis] == js[:, np.newaxis, :], 1).any(axis=1)
        total: Floats = np.where(again[:, :, np.newaxis], 0, change).sum(axis=1)
        return total / self._sizes[:, np.newaxis]


class Isega(Diana):
    """DIANA with random blocks, which takes heterogeneous data and an l1 term:

        g_i = h_i + (grad f_i(x) - h_i)_{U_i} / tau,    h_i = h_i + tau (g_i - h_i),
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

    def theory(self) -> Theory:
        """Convex f_i, strongly convex f, any R: with L the largest L_i, and alpha = tau,

            gamma = min{ 1 / (4 L (1 + 1/(n tau))), 1 / (mu/tau + 4 L/(n tau)) },  rate = gamma mu.

        K. Mishchenko, F. Hanzely and P. Richtarik (2020), the theorem on ISEGA.
        """
        problem, tau = self.problem, 1 / (self.omega + 1)
        smoothness, spread = max(problem.L_i), 1 / (problem.workers * tau)
        whole = 4 * smoothness * (1 + spread)
        gamma = 1 / max(whole, problem.mu / tau + 4 * smoothness * spread)
        return Theory(gamma, gamma * problem.mu if problem.mu else None, alpha=tau)
