"""What local steps are held against: the method written plainly, and linear recurrences by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparsewire.tools.optimize.methods.random_pairs import spectral_radius
from sparsewire.tools.optimize.problems.examples import from_arrays
from sparsewire.tools.optimize.problems.losses import LeastSquares
from sparsewire.tools.optimize.problems.problem import Floats, Problem


@dataclass
class Outer:
    """The options of a round, as `LocalSteps` has them."""

    every: int = 1
    outer: float = 1.0
    momentum: float = 0.0
    decay: float = 1.0
    delay: int = 0
    mix: float = 0.0
    merge: str = "mix"


def plain_points(
    problem: Problem,
    compress: Callable[[Floats], Floats],
    gamma: float,
    options: Outer,
    rounds: int,
) -> list[Floats]:
    """x after each round, worker by worker and with points in place of drifts; all take part."""
    workers = range(problem.workers)
    x = np.zeros(problem.dimension)
    buffer = x
    points = left = owed = [x] * len(workers)
    due: dict[int, Floats] = {}
    found = []
    for time in range(1, rounds * options.every + 1):
        points = [points[i] - gamma * problem.gradients([i], points[i])[0] for i in workers]
        if time % options.every == 0:
            left = points
            wanted = [options.decay * owed[i] + (x - points[i]) for i in workers]
            sent = [compress(each) for each in wanted]
            owed = [each - part for each, part in zip(wanted, sent, strict=True)]
            due[time + options.delay] = sum(sent) / len(workers)
        if time in due:
            mean = due.pop(time)
            buffer = options.momentum * buffer + mean
            x = x - options.outer * (mean + options.momentum * buffer)
            if options.merge == "mix":
                points = [options.mix * each + (1 - options.mix) * x for each in points]
            else:
                points = [x + each - before for each, before in zip(points, left, strict=True)]
        if time % options.every == 0:
            found.append(x)
    return found


def alike(workers: int, *curvatures: float) -> LeastSquares:
    """Workers that all have f = sum_k lambda_k x_k^2 / 2, whose solution is 0."""
    size = len(curvatures)
    rows = np.sqrt(size) * np.diag(np.sqrt(curvatures))
    parts = np.arange(workers * size).reshape(workers, size)
    data = from_arrays(np.tile(rows, (workers, 1)), np.zeros(workers * size))
    return LeastSquares(data, list(parts))


def round_matrix(left: float, options: Outer) -> Floats:
    """How (x, v, x_i) at the end of a round follow from those of the round before.

    `left` is what a local step leaves of a point: 1 - gamma lambda. delay < every, nothing is lost.
    """
    every, delay, mix = options.every, options.delay, options.mix
    x, v, local = np.eye(3)
    drift = x - local
    v = options.momentum * v + drift
    x = x - options.outer * (drift + options.momentum * v)
    late = left**delay * local
    local = mix * late + (1 - mix) * x if options.merge == "mix" else x + late - local
    return np.stack((x, v, left ** (every - delay) * local))


def delayed_matrix(pull: float, delay: int) -> Floats:
    """x^{k+1} = x^k - pull x^{k-delay}, on (x^k, ..., x^{k-delay})."""
    matrix = np.eye(delay + 1, k=-1)
    matrix[0, 0] = 1
    matrix[0, -1] -= pull
    return matrix


def limit_of(matrix: Callable[[float], Floats], low: float, high: float) -> float:
    """Where the matrix becomes unstable as its argument grows, between the two; by bisection."""
    assert spectral_radius(matrix(low)) < 1 < spectral_radius(matrix(high))
    for _ in range(60):
        middle = (low + high) / 2
        stable = spectral_radius(matrix(middle)) < 1
        low, high = (middle, high) if stable else (low, middle)
    return low
