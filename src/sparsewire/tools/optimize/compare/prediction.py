"""The theory's predictions before any run: rounds, bits and time to an accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparsewire.compress.draws import Draws
from sparsewire.tools.optimize.compare.candidate import Candidate
from sparsewire.tools.optimize.compare.task import VALUE_BITS
from sparsewire.tools.optimize.compare.yardstick import Yardstick
from sparsewire.tools.optimize.methods.blocks import BlockMethod, Iasgd
from sparsewire.tools.optimize.methods.diana import Diana
from sparsewire.tools.optimize.methods.local_steps import LocalSteps
from sparsewire.tools.optimize.methods.marina import Marina
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.problems.problem import Floats

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Prediction:
    """A candidate with the step size of its theory, and what that promises."""

    candidate: Candidate
    step_size: float
    rate: float
    """The Lyapunov function shrinks by 1 - rate per round, in expectation."""
    most_rounds: int
    """Rounds after which the theorem guarantees the accuracy."""
    rounds: int
    """Expected rounds on this problem: see `predict`."""
    message_bits: float
    """Per round and worker, of a message that was really encoded."""
    seconds: float
    """Seconds of the expected rounds' communication on the link."""


def predict(
    candidate: Candidate, method: Method, yardstick: Yardstick, accuracy: float
) -> Prediction | None:
    """The prediction for a method that has not started; None if its theory gives no rate.

    The theorem bounds the rounds for every problem with these constants. The expected rounds on
    this problem follow from its curvature (see `Decay`).
    """
    if method.rate is None or not method.rate > 0:
        return None
    most = rounds_to(accuracy, method.rate)
    rounds = _expected_rounds(method, method.rate, yardstick, accuracy)
    bits = message_bits(method, yardstick.problem.gradients(method.network.local, method.x))
    return Prediction(
        candidate,
        method.gamma,
        method.rate,
        most,
        rounds,
        bits,
        yardstick.link.seconds(rounds, rounds * bits, yardstick.problem.dimension),
    )


def _expected_rounds(method: Method, rate: float, yardstick: Yardstick, accuracy: float) -> int:
    most = rounds_to(accuracy, rate)
    if isinstance(method, Iasgd | LocalSteps):
        # A round is no gradient step.
        return most
    step = method.gamma * (method.tau if isinstance(method, BlockMethod) else 1.0)
    rounds = yardstick.decay.rounds(accuracy, step, most)
    # DIANA's theorem may count on no more than the least convex worker; the steps are long enough.
    if type(method) is Diana or rate >= step * yardstick.problem.mu * (1 - _ROUNDING):
        return rounds
    # Not the steps limit the rate, but what shifts and references have to learn. The theorem's
    # function holds squares of it, which shrink by (1 - r)^2 where the bound says 1 - r.
    return max(rounds, rounds_to(math.sqrt(accuracy), rate))


def rounds_to(accuracy: float, rate: float) -> int:
    """The least k with (1 - rate)^k <= accuracy, and at least 1."""
    if rate >= 1:
        return 1
    return max(1, math.ceil(math.log(accuracy) / math.log1p(-rate)))


def message_bits(method: Method, samples: Floats) -> float:
    """Bits of a worker's message per round, the mean over the workers' `samples`.

    `samples` (local, dimension) stand for what the workers compress. Each is encoded.
    """
    whole = float(VALUE_BITS * samples.shape[1])
    if not method.compressors:
        return whole
    local = [method.compressors[i] for i in method.network.local]
    all_draws = [Draws(0, i, "sample") for i in method.network.local]
    triples = zip(local, samples, all_draws, strict=True)
    compressed = 8 * float(np.mean([len(c.encode(sample, s)) for c, sample, s in triples]))
    if isinstance(method, Marina):
        return method.probability * whole + (1 - method.probability) * compressed
    return compressed
