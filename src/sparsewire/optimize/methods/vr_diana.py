"""VR-DIANA: DIANA on stochastic gradients whose variance vanishes at the solution."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from sparsewire.optimize.methods.diana import Diana, nonconvex_theory
from sparsewire.optimize.methods.sampled import Sampled
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Floats, Integers, Problem


def theory(problem: Problem, omega: float) -> Theory:
    """Strongly convex f with m components per worker, for both variants: with L = L_max,

        gamma = 1 / (L (1 + 36 (omega + 1) / n)),    alpha = 1 / (omega + 1),    p = 1/m,
        rate = min{ gamma mu, 1 / (2 (omega + 1)), 3 / (8 m) }.

    S. Horvath et al., "Stochastic distributed learning with gradient quantization and variance
    reduction" (2019), the theorem on VR-DIANA for strongly convex f, with the parameters of its
    corollary. Otherwise `nonconvex_theory`. Where workers have different numbers of components, m
    is the largest.
    """
    n, m = problem.workers, max(problem.m)
    if problem.mu <= 0:
        general = nonconvex_theory(problem.L_max, m, omega, n)
        return Theory(general.gamma, alpha=general.alpha, probability=1 / m)
    gamma = 1 / (problem.L_max * (1 + 36 * (omega + 1) / n))
    rate = min(gamma * problem.mu, 1 / (2 * (omega + 1)), 3 / (8 * m))
    return Theory(gamma, rate, 1 / (omega + 1), 1 / m)


class _VrDiana(Sampled, Diana):
    """What both variants share: estimates corrected by gradients at older points (references)."""

    saved: ClassVar[tuple[str, ...]] = (*Diana.saved, "mean_reference")

    def _begin(self) -> None:
        super()._begin()
        self.mean_reference: Floats | None = None
        """For each local worker the mean of its reference gradients; set by the first step."""

    def _theory(self) -> Theory:
        return theory(self.problem, self.omega)


class VrDianaLsvrg(_VrDiana):
    """With L-SVRG: all references are at one older point w, which a coin renews.

    The coin is shared by all workers and falls with probability 1/m; w is then the point at which
    the step began. A step costs two component gradients per draw, and m more per worker whenever
    the coin falls. A worker keeps as much as two gradients.
    """

    saved = (*_VrDiana.saved, "w")
    w: Floats | None = None

    def _estimates(self) -> Floats:
        if self.w is None or self.mean_reference is None:
            self.w, self.mean_reference = self.x, self._gradients()
        js = self._draw(self.batch)
        change = self._batch_gradients(js, self.x) - self._batch_gradients(js, self.w)
        estimates: Floats = change + self.mean_reference
        if self._coin.generator.random() < 1 / max(self.problem.m):
            self.w, self.mean_reference = self.x, self._gradients()
        return estimates


class VrDianaSaga(_VrDiana):
    """With SAGA: every component has a reference of its own, where it was drawn last.

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
        """Of every single draw: shape (local x batch, dimension)."""
        self.gradients += js.size
        owners = np.repeat(self._local, js.shape[1])
        return self.problem.batch_gradients(owners.tolist(), js.reshape(-1, 1), self.x)

    def _mean_change(self, js: Integers, change: Floats) -> Floats:
        """Of the local workers' references, where those drawn change (local, batch, dimension)."""
        # What is drawn twice changes once.
        again = np.triu(js[:, :, np.newaxis] == js[:, np.newaxis, :], 1).any(axis=1)
        total: Floats = np.where(again[:, :, np.newaxis], 0, change).sum(axis=1)
        return total / self._sizes[:, np.newaxis]
