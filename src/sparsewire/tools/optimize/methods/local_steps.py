"""Methods whose workers take steps of their own between messages: local SGD, DiLoCo, SparseLoCo.

They are what `sparsewire.torch.outer` does to networks, on functions whose solution is known.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsewire.tools.optimize.methods.error_feedback import ErrorFeedback
from sparsewire.tools.optimize.methods.method import Theory
from sparsewire.tools.optimize.problems.problem import Floats

Booleans = npt.NDArray[np.bool_]


class Average(str, Enum):
    """Whose mean a sum is: that of all workers, or of those who took part in the round."""

    MEMBERS = "members"
    CONTRIBUTORS = "contributors"


class Merge(str, Enum):
    """How workers go on from x after a delay: from between x and where they are, or from x plus
    what they did meanwhile."""

    MIX = "mix"
    CORRECTED = "corrected"


class LocalSteps(ErrorFeedback):
    """Each round worker i takes `every` steps from x, and sends how far it came.

    From x_i = x on, x_i = x_i - gamma g_i(x_i), where g_i is the gradient of f_i, or of `batch`
    drawn f_ij. Then, in units of gamma,

        drift_i = (x - x_i) / gamma,
        e_i = decay e_i + drift_i,    s_i = C(e_i),    e_i = e_i - s_i,
        v = momentum v + mean_i s_i,    x = x - outer gamma (mean_i s_i + momentum v).

    The last line has Nesterov's momentum as torch's SGD has it. All workers go on from x.

    - A worker takes part in a round with probability `participation`; what the others owe stays in
      their e_i. With `average` members the sum is divided by n, else by those who took part.
    - With `delay` d a sum is there d local steps after its messages were sent. Workers go on
      meanwhile, and then move to mix x_i + (1 - mix) x (A. Douillard et al., "Streaming DiLoCo",
      2025, arXiv 2501.18512), or with `merge` corrected to x plus what they did in these d steps.
      With delays of `every` and more their first sums count what they did in more than one round.
    - With `decay` 1 all is sent but what is still owed; below, each round forgets (1 - decay) e_i,
      and with 0 there is no error feedback. The papers call it beta.

    One local step, the identity, and `outer` 1 without momentum are gradient descent, bit by bit.
    """

    saved = ("e", "drift", "left", "v", "pending")

    def __init__(
        self,
        *parts: Any,
        every: int = 10,
        outer: float = 1.0,
        momentum: float = 0.0,
        decay: float = 1.0,
        delay: int = 0,
        mix: float = 0.0,
        merge: Merge = Merge.MIX,
        participation: float = 1.0,
        average: Average = Average.MEMBERS,
        batch: int | None = None,
        **options: Any,
    ) -> None:
        """All components are used unless `batch` are drawn per worker and step.

        Raises ValueError for what is out of range, and for operators that are no contractions.
        """
        _require("every", every >= 1, "at least 1", every)
        _require("outer", 0 < outer < np.inf, "positive", outer)
        _require("momentum", 0 <= momentum < 1, "in [0, 1)", momentum)
        _require("decay", 0 <= decay <= 1, "in [0, 1]", decay)
        _require("delay", delay >= 0, "0 or more", delay)
        _require("mix", 0 <= mix < 1, "in [0, 1)", mix)
        self.merge = Merge(merge)
        if self.merge is Merge.CORRECTED:
            _require("delay", delay < every, f"below every = {every}, to be corrected", delay)
        _require("participation", 0 < participation <= 1, "in (0, 1]", participation)
        self.every, self.outer, self.momentum, self.decay = every, outer, momentum, decay
        self.delay, self.mix, self.batch = delay, mix, batch
        self.participation, self.average = participation, Average(average)
        super().__init__(*parts, **options)

    def theory(self) -> Theory:
        """For convex f_i, or f_ij if `batch` are drawn. With S the largest L_i, or L_max if so,

            gamma = 1/S,    rho = mean_i (1 - gamma mu_i)^every,
            rate = 1 - (1 - outer (1 - rho))^2,    or outer (1 - rho) if components are drawn,

        with the identity, no momentum, and outer <= 1. The rate is that at which the distance
        shrinks, not to x*, but to the point x_H where the method stands still; if components are
        drawn, that of two runs with equal draws. x_H is x* if workers agree there, and otherwise

            |x_H - x*| <= |T(x*) - x*| / (1 - rho),    T = mean_i T_i,

        where T_i is what the steps of worker i make of a point. G. Malinovsky et al., "From local
        SGD to local fixed-point methods for federated learning" (ICML 2020): a step of f_i shrinks
        distances by 1 - gamma mu_i, so T_i, T, and a move by `outer` <= 1 of its way shrink them,
        and |x_H - x*| <= |T(x_H) - T(x*)| + |T(x*) - x*|. A drawn step shrinks the mean of their
        squares by 1 - gamma (2 - gamma L_max) mu_i (A. Dieuleveut, A. Durmus and F. Bach, "Bridging
        the gap between constant step size SGD and Markov chains", Annals of Statistics 2020).

        With momentum no rate is known. If all f_i are one quadratic, then for each eigenvector with
        s = 1 - (1 - gamma lambda)^every, in (0, 1], x and v follow a matrix with the trace
        1 + momentum - outer s (1 + momentum) and the determinant momentum - outer s momentum. It
        is stable for outer s < 2 (1 + momentum) / (1 + 2 momentum), required here for s = 1.

        With a contraction a < 1, gamma = a / (28 S every outer), at most 1/S: one step with decay
        1 is `Ef14`, with its rate. D. Basu et al., "Qsparse-local-SGD" (NeurIPS 2019), have steps
        of the order of a / (L every), too, that become shorter. No rate is known for more steps.

        Raises ValueError for all else: delays, mixing, absent workers, longer outer steps.
        """
        if self.delay or self.mix or self.participation < 1:
            raise ValueError("no theory is for delay, mix or participation: pass gamma")
        limit = 2 * (1 + self.momentum) / (1 + 2 * self.momentum)
        if self.momentum and self.outer >= limit:
            raise ValueError(f"outer must be below {limit:.3g} with this momentum: pass gamma")
        if self.contraction < 1:
            return self._theory_of_compression()
        if not self.momentum and self.outer > 1:
            raise ValueError("theory is for an outer rate of at most 1: pass gamma")
        return self._theory_of_contraction()

    def _theory_of_contraction(self) -> Theory:
        gamma, problem = 1 / self._smoothness, self.problem
        remaining = float(np.mean([(1 - gamma * mu) ** self.every for mu in problem.mu_i]))
        kept = 1 - self.outer * (1 - remaining)
        rate = 1 - kept**2 if self.batch is None else 1 - kept
        return Theory(gamma, rate if rate > 0 and not self.momentum else None)

    def _theory_of_compression(self) -> Theory:
        self._require_contraction()
        if self.momentum:
            raise ValueError("no theory is for momentum and compression together: pass gamma")
        whole = self.contraction / (28 * self.every * self.outer)
        gamma = min(1.0, whole) / self._smoothness
        is_ef14 = self.every == 1 and self.decay == 1 and self.batch is None
        rate = self.outer * gamma * self.problem.mu / 2
        return Theory(gamma, rate if is_ef14 and rate > 0 else None)

    @property
    def _smoothness(self) -> float:
        return max(self.problem.L_i) if self.batch is None else self.problem.L_max

    def _begin(self) -> None:
        self.e = self._zeros()
        """What the local workers owe, in units of gamma: shape (local, dimension)."""
        self.drift = self._zeros()
        """(x - x_i) / gamma of the local workers: shape (local, dimension)."""
        self.left = self._zeros()
        """What it was when they sent last."""
        self.v: Floats = np.zeros(self.problem.dimension)
        """The outer momentum."""
        self.pending: Floats = np.zeros((self.delay // self.every + 1, self.problem.dimension))
        """The means of the last rounds, that of round k in row k modulo their number."""

    def _step(self) -> None:
        before = self.rounds * self.every
        for time in range(before + 1, before + self.every + 1):
            self.drift = self.drift + self._gradients_at(self._points(), self.batch)
            if time == before + self.every:
                self.pending[self.rounds % len(self.pending)] = self._sum_of_round()
            finished, rest = divmod(time - self.delay, self.every)
            if finished >= 1 and rest == 0:
                self._take(self.pending[(finished - 1) % len(self.pending)])

    def _points(self) -> Floats:
        return self.x - self.gamma * self.drift

    def _sum_of_round(self) -> Floats:
        """Send what is owed and new; the mean of what all sent."""
        self.left = self.drift
        wanted = self.decay * self.e + self.drift
        present = self._present()
        sent = self._send_of(present, wanted)
        self.e = wanted - self._own(sent)
        everyone = self.average is Average.MEMBERS
        mean: Floats = sent.sum(axis=0) / (len(present) if everyone else max(1, present.sum()))
        return mean

    def _present(self) -> Booleans:
        """Who takes part in this round, of all workers; every process draws alike."""
        workers = self.network.workers
        if self.participation == 1:
            return np.ones(workers, np.bool_)
        present: Booleans = self._coin.generator.random(workers) < self.participation
        return present

    def _send_of(self, present: Booleans, vectors: Floats) -> Floats:
        """Like `_send`, of those who are present: others send an empty message, and have zeros."""
        codes, messages = {}, []
        for i, vector, draws in zip(self.network.local, vectors, self._roundings, strict=True):
            if present[i]:
                codes[i] = self.compressors[i].code(vector, draws)
            messages.append(self.compressors[i].pack(codes[i]) if present[i] else b"")
        payloads = self._all_gather(messages)
        received = np.zeros((self.network.workers, self.problem.dimension))
        for i in np.flatnonzero(present).tolist():
            own, compressor = i in codes, self.compressors[i]
            received[i] = (
                compressor.reconstruct(codes[i]) if own else compressor.decode(payloads[i])
            )
        return received

    def _take(self, mean: Floats) -> None:
        """Move x by a round's mean, and the workers towards it."""
        self.v = self.momentum * self.v + mean
        ahead = mean + self.momentum * self.v
        self.x = self.x - self.outer * self.gamma * ahead
        if self.merge is Merge.CORRECTED:
            self.drift = self.drift - self.left
        else:
            self.drift = self.mix * (self.drift - self.outer * ahead)


class LocalSgd(LocalSteps):
    """The mean of the points where the workers are after `every` steps.

    H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized
    data" (AISTATS 2017).
    """


class DiLoCo(LocalSteps):
    """Nesterov's momentum on the mean drift: outer rate 0.7, momentum 0.9.

    A. Douillard et al., "DiLoCo: distributed low-communication training of language models" (2023,
    arXiv 2311.08105), whose inner steps are AdamW's.
    """

    def __init__(
        self, *parts: Any, outer: float = 0.7, momentum: float = 0.9, **options: Any
    ) -> None:
        super().__init__(*parts, outer=outer, momentum=momentum, **options)


class SparseLoCo(LocalSteps):
    """The largest elements of the drift, quantised, with error feedback that decays by 0.95.

    A. Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo" (2025, arXiv
    2508.15706).
    """

    def __init__(self, *parts: Any, decay: float = 0.95, **options: Any) -> None:
        super().__init__(*parts, decay=decay, **options)


def _require(name: str, holds: bool, what: str, value: float) -> None:
    if not holds:
        raise ValueError(f"{name} must be {what}, not {value}")
