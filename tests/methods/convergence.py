"""How fast a method comes close to the solution, as the tests measure it."""

from __future__ import annotations

import numpy as np

from sparsewire.methods.method import Method
from sparsewire.problems.problem import Floats

# Squared distances below this are rounding errors.
ROUNDING = 1e-22


def squared_distances(method: Method, solution: Floats, steps: int, every: int = 10) -> Floats:
    """|x - x*|^2 before the first of `steps` steps, and after every `every` of them."""
    distances = [np.square(method.x - solution).sum()]
    for _ in range(steps // every):
        for _ in range(every):
            method.step()
        distances.append(np.square(method.x - solution).sum())
    return np.array(distances)


def slope(distances: Floats, every: int = 10) -> float:
    """-d log |x - x*|^2 / dk, over the last half of what is above rounding errors."""
    below = np.flatnonzero(distances < ROUNDING)
    end = int(below[0]) if len(below) else len(distances)
    logs = np.log(distances[end // 2 : end])
    return -float(np.polyfit(np.arange(len(logs)) * every, logs, 1)[0])
