"""EF14, the first error feedback: what compression loses is added to what is sent next."""

from __future__ import annotations

from sparsewire.optimize.methods.error_feedback import ErrorFeedback
from sparsewire.optimize.methods.theory import Theory
from sparsewire.optimize.problems.problem import Problem


def theory(problem: Problem, contraction: float) -> Theory:
    """For convex f_i with full gradients, with L the largest L_i:

        gamma = a / (28 L),    rate = gamma mu / 2,

    down to a floor that depends on mean_i |grad f_i(x*)|^2 and is 0 where all of these vanish.
    A. Beznosikov et al., "On biased compression for distributed learning" (JMLR 2023), the theorem
    on distributed SGD with error feedback, with delta = 1/a and B = 0.
    """
    gamma = contraction / (28 * max(problem.L_i))
    return Theory(gamma, gamma * problem.mu / 2 if problem.mu else None)


class Ef14(ErrorFeedback):
    """Worker i sends C(p_i), p_i = e_i + gamma grad f_i(x), and keeps e_i = p_i - C(p_i).

    x moves by the mean of what was sent. F. Seide et al., "1-bit stochastic gradient descent"
    (Interspeech 2014).
    """

    saved = ("e",)

    def _theory(self) -> Theory:
        self._require_contraction()
        return theory(self.problem, self.contraction)

    def _begin(self) -> None:
        self.e = self._zeros()
        """The residuals of the local workers: shape (local, dimension)."""

    def _step(self) -> None:
        wanted = self.e + self.gamma * self._gradients()
        sent = self._send(wanted)
        self.e = wanted - self._own(sent)
        self.x = self.x - sent.mean(axis=0)
