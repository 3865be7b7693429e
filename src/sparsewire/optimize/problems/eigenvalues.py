"""Extreme eigenvalues of X^T X: where a problem's constants come from."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigvalsh
from scipy.sparse import issparse

from sparsewire.optimize.problems.problem import Floats
from sparsewire.optimize.problems.sources import Rows

EXACT_SIZE = 2000
"""Up to so many rows or columns, eigenvalues are exact (to rounding); above, they are bounds."""
_ITERATIONS = 100


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
