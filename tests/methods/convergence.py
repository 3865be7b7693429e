"""How fast a method comes close to the solution, as the tests measure it."""

from __future__ import annotations

import numpy as np

from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.problems.problem import Floats

# Squared distances below this are rounding errors.
ROUNDING = 1e-22


def squared_distances(method: Method, solution: Floats, steps: int, every: int = 10) -> Floats:
    """|x - x*|^2 before the first step, and after every `every` of them.

    Takes `steps` steps, or fewer where only rounding errors are left.
    """
    distances = [np.square(method.x - solution).sum()]
    for _ in range(steps // every):
        for _ in range(every):
            method.step()
        distances.append(np.square(method.x - solution).sum())
        if distances[-1] < ROUNDING:
            break
    return np.array(distances)


def rounds_to(distance: float, distances: Floats, every: int = 10) -> float:
    """How many steps it takes to come so close; infinitely many where it does not."""
    close = np.flatnonzero(distances <= distance)
    return every * float(close[0]) if len(close) else np.inf


def slope(distances: Floats, every: int = 10) -> float:
    """-d log |x - x*|^2 / dk, over the last half of what is above rounding errors."""
    below = np.flatnonzero(distances < ROUNDING)
    end = int(below[0]) if len(below) else len(distances)
    logs = np.log(distances[end // 2 : end])
    return -float(np.polyfit(np.arange(len(logs)) * every, logs, 1)[0])
