"""Problems whose components depend on one linear function each; their losses derive from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse import issparse

from sparsewire.errors import DataError
from sparsewire.tools.optimize.problems.examples import Examples, Rows
from sparsewire.tools.optimize.problems.problem import Floats, Integers, Problem
from sparsewire.tools.optimize.problems.rows import DenseRows, SparseRows

EXACT_SIZE = 2000
"""Eigenvalues are exact (to rounding) up to so many rows or columns; above, they are bounds."""
_ITERATIONS = 100
_CONSTANTS = ("L", "L_i", "L_max", "mu", "mu_i")


class LinearModel(Problem):
    """f_ij(x) = phi(<a_ij, x>, b_ij) + l2/2 |x|^2, where phi is smooth in its first argument.

    A derived class gives phi and its derivatives, element by element, and a bound on the second.
    The second argument is the label. There is no intercept: where one is needed, the data has a
    feature that is always 1. Constants are exact for that bound (see `extreme_eigenvalues`), and
    computed when they are first asked for.
    """

    name: ClassVar[str]
    takes_classes: ClassVar[bool] = False
    """Whether labels must be -1 and +1."""
    curvature: ClassVar[float]
    """An upper bound on the second derivative of phi."""
    least_curvature: ClassVar[float] = 0.0
    """A lower bound on it."""

    def __init__(
        self,
        examples: Examples,
        parts: Sequence[Integers],
        *,
        l2: float = 0.0,
        l1: float = 0.0,
    ) -> None:
        """Give worker i the rows `parts[i]` of the examples, as `examples.shuffled` deals them.

        Raises ValueError where a worker has no rows, or a weight is negative, DataError for labels
        that the model does not take.
        """
        if self.takes_classes and not (np.abs(examples.labels) == 1).all():
            raise DataError(f"{self.name} takes the labels -1 and +1")
        if len(parts) == 0 or not all(map(len, parts)):
            raise ValueError("every worker must have at least one row")
        if not (0 <= l2 < np.inf and 0 <= l1 < np.inf):
            raise ValueError(f"l2 and l1 must be 0 or more and finite, not {l2} and {l1}")
        self.examples = examples.select(np.concatenate(parts))
        """The rows of all workers, one worker after the other."""
        rows = self.examples.features
        self.dimension = rows.shape[1]
        self.m = tuple(map(len, parts))
        self.l2, self.l1 = l2, l1
        self._starts = np.concatenate([[0], np.cumsum(self.m)])
        self._counts = np.repeat(np.array(self.m, np.float64), self.m)
        # The weight of a row in f, which is a mean over workers of means over rows.
        self._shares = 1 / (self.workers * self._counts)
        self._rows = (SparseRows if issparse(rows) else DenseRows)(rows, self._starts)

    def loss(self, x: Floats) -> float:
        values = self.values(self._margins(x), self.examples.labels)
        return float(self._shares @ values) + self._penalty(x)

    def gradients(self, workers: Sequence[int], x: Floats) -> Floats:
        rows = self._rows_of(workers)
        slopes = self.slopes(self._rows.margins(workers, x), self.examples.labels[rows])
        sums = self._rows.weighted_sums(workers, slopes / self._counts[rows])
        return sums + self._penalty_gradient(x)

    def batch_gradients(self, workers: Sequence[int], js: Integers, x: Floats) -> Floats:
        rows, batch = (self._starts[np.asarray(workers)][:, np.newaxis] + js).ravel(), js.shape[1]
        slopes = self.slopes(self._rows.picked_margins(rows, x), self.examples.labels[rows])
        return self._rows.picked_sums(rows, slopes / batch, batch) + self._penalty_gradient(x)

    def hessian(self, x: Floats) -> Floats:
        """The second derivative of f at x: (dimension, dimension), dense."""
        curvatures = self.curvatures(self._margins(x), self.examples.labels)
        hessian = self._rows.gram(self._shares * curvatures)
        hessian[np.diag_indices(self.dimension)] += self._penalty_curvature(x)
        return hessian

    @abstractmethod
    def values(self, margins: Floats, labels: Floats) -> Floats:
        """phi."""

    @abstractmethod
    def slopes(self, margins: Floats, labels: Floats) -> Floats:
        """The derivative of phi by the margin."""

    @abstractmethod
    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        """The second derivative."""

    def _penalty(self, x: Floats) -> float:
        return self.l2 / 2 * float(x @ x)

    def _penalty_gradient(self, x: Floats) -> Floats:
        return self.l2 * x

    def _penalty_curvature(self, x: Floats) -> Floats | float:
        return self.l2

    def _penalty_bounds(self) -> tuple[float, float]:
        """Bounds of the penalty's second derivatives: the least, and the largest magnitude."""
        return self.l2, self.l2

    def _margins(self, x: Floats) -> Floats:
        return self._rows.margins(range(self.workers), x)

    def _rows_of(self, workers: Sequence[int]) -> slice | Integers:
        """Indices of these workers' rows, one worker after the other."""
        first, last = workers[0], workers[-1]
        if list(workers) == list(range(first, last + 1)):
            return slice(self._starts[first], self._starts[last + 1])
        return np.concatenate([np.arange(self._starts[i], self._starts[i + 1]) for i in workers])

    def __getattr__(self, name: str) -> Any:
        """The constants, once they are asked for: not every method does, and they take time."""
        if name not in _CONSTANTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._set_constants(self.examples.features)
        return self.__dict__[name]

    def _set_constants(self, rows: Rows) -> None:
        least, largest = self._penalty_bounds()
        smallest, whole = extreme_eigenvalues(self._rows.weighted(np.sqrt(self._shares)))
        self.L = self.curvature * whole + largest
        self.L_max = self.curvature * float(self._rows.squared_lengths().max()) + largest
        self.mu = max(0.0, self.least_curvature * smallest + least)
        parts = [extreme_eigenvalues(rows[start:end]) for start, end in pairwise(self._starts)]
        pairs = list(zip(parts, self.m, strict=True))
        self.L_i = tuple(self.curvature * high / m + largest for (_, high), m in pairs)
        self.mu_i = tuple(max(0.0, self.least_curvature * low / m + least) for (low, _), m in pairs)


def extreme_eigenvalues(rows: Rows) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of X^T X, for X of shape (rows, dimension).

    Exact where X has at most EXACT_SIZE rows or columns. Beyond that they are safe bounds: 0, and
    what `largest_bound` gives.
    """
    small, dimension = min(rows.shape), rows.shape[1]
    if small > EXACT_SIZE:
        return 0.0, largest_bound(rows)
    gram = rows.T @ rows if small == dimension else rows @ rows.T
    spectrum = eigvalsh(gram.toarray() if issparse(gram) else gram)
    largest = max(float(spectrum[-1]), 0.0)
    # Below this a singular matrix cannot be told from a regular one.
    resolution = small * np.finfo(np.float64).eps * largest
    smallest = float(spectrum[0]) if small == dimension else 0.0
    return (smallest if smallest > resolution else 0.0), largest


def largest_bound(rows: Rows) -> float:
    """An upper bound on the largest eigenvalue of X^T X; tight where no value is negative.

    For B = |X|^T |X| and every positive v, no eigenvalue exceeds max_j (B v)_j / v_j (Collatz and
    Wielandt; R. Horn and C. Johnson, "Matrix Analysis", section 8.1). Power iteration makes v
    good, and each step gives a bound that is safe. The squared Frobenius norm is one as well.
    """
    magnitudes = abs(rows)
    bound = float((magnitudes * magnitudes).sum())
    v: Floats = np.ones(rows.shape[1])
    for _ in range(_ITERATIONS):
        product = magnitudes.T @ (magnitudes @ v)
        bound = min(bound, float((product / v).max()))
        # Never 0, as it is where a column is empty: the bound divides by it.
        v = product / product.max() + 1e-9 if product.any() else v
    return bound
