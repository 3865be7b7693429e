"""Methods with error feedback, which take every compressor, biased ones included: EF14 and EF21."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from sparsewire.compress.composition import as_contraction
from sparsewire.compress.compressor import Compressor
from sparsewire.tools.optimize.methods.method import Method, Sampled, Theory
from sparsewire.tools.optimize.problems.problem import Floats


class ErrorFeedback(Method):
    """A method over contractive maps: E|C(x) - x|^2 <= (1 - a) |x|^2, a = `self.contraction`.

    Unbiased compressors are no contractions, so that `as_contraction` of each takes its place; it
    raises CompressError, which is a ValueError, where no contraction is known.
    """

    def _adapted(self, compressor: Compressor) -> Compressor:
        return as_contraction(compressor)

    def _require_contraction(self) -> None:
        if not self.contraction > 0:
            raise ValueError("no contraction is known of this compressor: pass gamma")


class Ef14(ErrorFeedback):
    """The first error feedback: what compression loses is added to what is sent next.

    Worker i sends C(p_i), p_i = e_i + gamma grad f_i(x), and keeps e_i = p_i - C(p_i). x moves by
    the mean of what was sent. F. Seide et al., "1-bit stochastic gradient descent" (Interspeech
    2014).
    """

    saved = ("e",)

    def theory(self) -> Theory:
        """For convex f_i with full gradients, with L the largest L_i:

            gamma = a / (28 L),    rate = gamma mu / 2,

        down to a floor that depends on mean_i |grad f_i(x*)|^2 and is 0 where all of these vanish.
        A. Beznosikov et al., "On biased compression for distributed learning" (JMLR 2023), the
        theorem on distributed SGD with error feedback, with delta = 1/a and B = 0.
        """
        self._require_contraction()
        gamma = self.contraction / (28 * max(self.problem.L_i))
        return Theory(gamma, gamma * self.problem.mu / 2 if self.problem.mu else None)

    def _begin(self) -> None:
        self.e = self._zeros()
        """The residuals of the local workers: shape (local, dimension)."""

    def _step(self) -> None:
        wanted = self.e + self.gamma * self._estimates()
        sent = self._send(wanted)
        self.e = wanted - self._own(sent)
        self.x = self.x - sent.mean(axis=0)


class Ef21(ErrorFeedback):
    """Each worker compresses how far its gradient is from an estimate g_i that all know.

    Worker i sends C(grad f_i(x) - g_i), by which g_i moves; x moves along the mean of all g_i. The
    estimates start at 0, so that g_i is C(grad f_i(x^0)) after the first message.
    """

    saved: ClassVar[tuple[str, ...]] = ("g", "mean_g")

    def theory(self) -> Theory:
        """With theta = 1 - sqrt(1 - a), b = (1 - a) / theta, and M^2 = mean_i L_i^2:

            gamma = 1 / (L + M sqrt(b / theta))                              (Theorem 1, any f),
            gamma = min{ 1 / (L + M sqrt(2 b / theta)), theta / (2 mu) },
            rate = gamma mu                                                         (Theorem 2).

        P. Richtarik, I. Sokolov and I. Fatkhullin, "EF21" (NeurIPS 2021). Theorem 2 asks for the
        Polyak-Lojasiewicz condition only, which strong convexity implies; its Lyapunov function is
        f(x) - min f plus a multiple of mean_i |g_i - grad f_i(x)|^2. By Theorem 1 the mean of
        E|grad f(x^k)|^2 over K steps is at most

            (2 (f(x^0) - min f) / gamma + mean_i |g_i^0 - grad f_i(x^0)|^2 / theta) / K.
        """
        self._require_contraction()
        problem, loss = self.problem, 1 - self.contraction
        theta = 1 - math.sqrt(loss)
        ratio = loss / theta**2
        if problem.mu <= 0:
            return Theory(1 / (problem.L + problem.L_rms * math.sqrt(ratio)))
        gamma = 1 / (problem.L + problem.L_rms * math.sqrt(2 * ratio))
        gamma = min(gamma, theta / (2 * problem.mu))
        return Theory(gamma, gamma * problem.mu)

    def _begin(self) -> None:
        self.g = self._zeros()
        """The estimates of the local workers: shape (local, dimension)."""
        self.mean_g: Floats = self.g[0].copy()
        """The server's copy of their mean over all workers."""

    def _step(self) -> None:
        changes = self._send(self._estimates() - self.g)
        self.g = self.g + self._own(changes)
        self.mean_g = self.mean_g + changes.mean(axis=0)
        self.x = self.x - self.gamma * self.mean_g


class Ef21Sgdm(Sampled, Ef21):
    """EF21 on momentum, so that stochastic gradients of small batches are enough.

    The estimates follow v_i = (1 - eta) v_i + eta g, where g is the mean gradient of drawn f_ij.
    v_i starts as such a mean gradient.
    """

    saved = (*Ef21.saved, "v")

    def __init__(self, *parts: Any, eta: float = 0.1, **options: Any) -> None:
        """Raises ValueError for eta outside (0, 1]."""
        if not 0 < eta <= 1:
            raise ValueError(f"eta must be in (0, 1], not {eta}")
        self.eta = eta
        super().__init__(*parts, **options)

    def theory(self) -> Theory:
        """Any smooth f: gamma = min{ a / (20 M), eta / (7 L) }, where M^2 = mean_i L_i^2.

        The mean of E|grad f(x^k)|^2 over T steps is then of the order of
        1/(gamma T) + (eta^3/a^2 + eta^2/a + eta/n) sigma^2. I. Fatkhullin, A. Tyurin and P.
        Richtarik, "Momentum provably improves error feedback!" (NeurIPS 2023), Theorem 3.
        """
        self._require_contraction()
        problem = self.problem
        return Theory(min(self.contraction / (20 * problem.L_rms), self.eta / (7 * problem.L)))

    def _begin(self) -> None:
        super()._begin()
        self.v: Floats | None = None

    def _estimates(self) -> Floats:
        fresh = super()._estimates()
        self.v = fresh if self.v is None else (1 - self.eta) * self.v + self.eta * fresh
        return self.v
