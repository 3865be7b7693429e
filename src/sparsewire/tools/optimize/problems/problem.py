"""The interface of functions to minimise; every problem derives from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Problem(ABC):
    """F(x) = f(x) + R(x), where f is the mean of n workers' f_i, and R(x) = l1 |x|_1.

    Worker i holds f_i, which is the mean of `m[i]` smooth components f_ij. Points and gradients
    are float64 of shape (dimension,).
    """

    dimension: int
    m: tuple[int, ...]
    """Components of each worker."""
    L: float
    """Smoothness of f."""
    L_i: tuple[float, ...]
    """Smoothness of each f_i."""
    L_max: float
    """The largest smoothness of a single f_ij."""
    mu: float
    """Strong convexity of f; 0 where f is not strongly convex."""
    mu_i: tuple[float, ...]
    """Strong convexity of each f_i, which may be 0 where that of f is not."""
    l1: float = 0.0
    """Weight of R."""

    @property
    def workers(self) -> int:
        """n."""
        return len(self.m)

    @property
    def L_rms(self) -> float:
        """The root mean square of all L_i."""
        return math.sqrt(math.fsum(smoothness**2 for smoothness in self.L_i) / self.workers)

    @abstractmethod
    def loss(self, x: Floats) -> float:
        """f(x), without R."""

    @abstractmethod
    def gradients(self, workers: Sequence[int], x: Floats) -> Floats:
        """The gradients of several f_i: shape (len(workers), dimension).

        Each row has the same bits whatever else is in `workers`.
        """

    @abstractmethod
    def batch_gradients(self, workers: Sequence[int], js: Integers, x: Floats) -> Floats:
        """The mean gradient of each worker's components in `js`.

        `js` has the shape (len(workers), batch), the result (len(workers), dimension).
        """

    def sample_gradients(self, i: int, js: Integers, x: Floats) -> Floats:
        """The gradients of the components f_ij, j in `js`: shape (len(js), dimension)."""
        return self.batch_gradients([i] * len(js), js[:, np.newaxis], x)

    def full_gradient(self, x: Floats) -> Floats:
        """The gradient of f at x."""
        mean: Floats = self.gradients(range(self.workers), x).mean(axis=0)
        return mean

    def prox(self, x: Floats, gamma: float) -> Floats:
        """argmin_y gamma R(y) + |y - x|^2 / 2: soft thresholding, or x itself where R = 0."""
        if self.l1 == 0:
            return x
        threshold = gamma * self.l1
        return x - np.clip(x, -threshold, threshold)

    def composite(self, x: Floats) -> float:
        """F(x) = f(x) + R(x)."""
        return self.loss(x) + self.l1 * float(np.abs(x).sum())
