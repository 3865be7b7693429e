"""IBGD: IBCD whose workers toss a coin for every block."""

from __future__ import annotations

import numpy as np

from sparsewire.compress.seeded import Bernoulli, SeededSparsifier
from sparsewire.optimize.methods.ibcd import Ibcd
from sparsewire.optimize.problems.problem import Problem


class Ibgd(Ibcd):
    """x = x - gamma mean_i grad f_i(x)_{U_i}, where U_i holds each block with probability tau.

    `ibcd.theory` is its theory, too. Messages differ in length, and may hold no block at all. By
    default tau is 1/n, and every coordinate is a block of its own.
    """

    def _default(self, problem: Problem) -> SeededSparsifier:
        return Bernoulli(problem.dimension, 1 / problem.workers, 1, np.float64)
