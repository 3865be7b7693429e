"""NoLoCo: after local steps workers average with a random partner, and no sum is over all."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsewire.tools.optimize.methods.method import Method, Theory
from sparsewire.tools.optimize.methods.network import Network
from sparsewire.tools.optimize.problems.problem import Floats, Integers, Problem


class NoLoCo(Method):
    """Each worker has a point phi_i of its own, and x is their mean.

    Each round worker i takes `every` steps from phi_i, as in `LocalSteps`, to phi_i - gamma
    drift_i. Then random pairs exchange points and drifts, and with means over the pair

        m_i = momentum m_i - outer gamma mean(drift) + consensus (mean(phi) - phi_i),
        phi_i = phi_i + m_i.

    `consensus` is `outer` unless given. If workers are odd in number, one is its own partner. J.
    Kolehmainen et al., "NoLoCo: no-all-reduce low communication training method for large models"
    (2025, arXiv 2506.10911).
    """

    saved = ("phi", "m")

    def __init__(
        self,
        problem: Problem,
        network: Network,
        *,
        every: int = 10,
        outer: float = 0.7,
        momentum: float = 0.5,
        consensus: float | None = None,
        batch: int | None = None,
        **options: Any,
    ) -> None:
        """Raises ValueError for what is out of range."""
        self.every, self.outer, self.momentum, self.batch = every, outer, momentum, batch
        self.consensus = outer if consensus is None else consensus
        if every < 1 or not 0 < outer < np.inf or not 0 <= momentum < 1 or self.consensus < 0:
            raise ValueError(
                "every must be at least 1, outer positive, momentum in [0, 1), and consensus 0 or "
                f"more, not {every}, {outer}, {momentum} and {self.consensus}"
            )
        super().__init__(problem, network, (), **options)

    def theory(self) -> Theory:
        """gamma = 1/S, with S the largest L_i, or L_max with `batch`; no rate is known.

        The distances between workers stay bounded where `spread_matrix` is stable, which is
        required, and x follows the heavy ball on the mean drift, which is stable on a quadratic for
        outer < 2 (1 + momentum). Raises ValueError elsewhere.
        """
        n = self.problem.workers
        if n > 1 and spectral_radius(spread_matrix(n, self.momentum, self.consensus)) >= 1:
            raise ValueError("with this momentum and consensus workers part: pass gamma")
        if self.outer >= 2 * (1 + self.momentum):
            raise ValueError("outer must be below 2 (1 + momentum): pass gamma")
        smoothness = max(self.problem.L_i) if self.batch is None else self.problem.L_max
        return Theory(1 / smoothness)

    def _begin(self) -> None:
        self.phi: Floats = np.tile(self.x, (self.network.workers, 1))
        """The points of all workers, of which every process keeps a copy."""
        self.m: Floats = np.zeros_like(self.phi)

    @property
    def spread(self) -> float:
        """mean_i |phi_i - x|^2."""
        return float(np.square(self.phi - self.x).sum(axis=1).mean())

    def _step(self) -> None:
        drift = self._zeros()
        for _ in range(self.every):
            points = self._own(self.phi) - self.gamma * drift
            drift = drift + self._gradients_at(points, self.batch)
        # Everybody knows the points here; between real partners they have to be sent.
        messages = self._send_exactly(np.hstack((self._own(self.phi), drift)))
        _, drifts = np.hsplit(messages, 2)
        partners = self._partners()
        consent = _mean_of_pairs(self.phi, partners) - self.phi
        moves = -self.outer * self.gamma * _mean_of_pairs(drifts, partners)
        self.m = self.momentum * self.m + moves + self.consensus * consent
        self.phi = self.phi + self.m
        self.x = self.phi.mean(axis=0)

    def _partners(self) -> Integers:
        """The partner of each worker in this round; every process draws alike."""
        order = self._coin.generator.permutation(self.network.workers)
        partners, pairs = np.arange(len(order)), order[: len(order) // 2 * 2].reshape(-1, 2)
        partners[pairs] = pairs[:, ::-1]
        return partners


def _mean_of_pairs(vectors: Floats, partners: Integers) -> Floats:
    mean: Floats = (vectors + vectors[partners]) / 2
    return mean


def spread_matrix(workers: int, momentum: float, consensus: float) -> Floats:
    """How E phi^2, E phi m and E m^2 of a worker, as distances from the mean, change in a round.

    Without drifts, and for n = `workers` at least 2. A partner is any of the n - 1 others, whose
    distances sum to minus a worker's own, so that E phi_i phi_j = -E phi^2 / (n - 1). With
    d = (phi_j - phi_i) / 2 and h = n / (n - 1), therefore, E d phi = -h/2 E phi^2, E d m = -h/2
    E phi m, E d^2 = h/2 E phi^2, and m' = momentum m + consensus d, phi' = phi + m'. If n is odd, a
    worker has a partner in (n - 1)/n of the rounds only, and d = 0 in the others.
    """
    half = (1 if workers % 2 else workers / (workers - 1)) / 2
    # E m'^2, and E phi m', of (E phi^2, E phi m, E m^2).
    squares = np.array([consensus**2 * half, -2 * momentum * consensus * half, momentum**2])
    products = np.array([-consensus * half, momentum, 0.0])
    return np.stack(([1.0, 0.0, 0.0] + 2 * products + squares, products + squares, squares))


def spectral_radius(matrix: Floats) -> float:
    """The largest magnitude of an eigenvalue."""
    return float(np.abs(np.linalg.eigvals(matrix)).max())
