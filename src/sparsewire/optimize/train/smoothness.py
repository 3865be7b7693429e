"""How strongly the gradient can change: the constants that safe step sizes come from."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import svds

from sparsewire import Communicator
from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.sources import Rows


def expected_smoothness(comm: Communicator, problem: LinearModel, mine: Rows, batch: int) -> float:
    """The smoothness constant of stochastic gradients of `batch` rows in total; collective.

    R. Gower et al., "SGD: General Analysis and Improved Rates" (ICML 2019), for batches drawn
    without replacement: with L of the whole objective and L_max of its worst row, of n rows,

        L(batch) = n (batch - 1) / (batch (n - 1)) L + (n - batch) / (batch (n - 1)) L_max.

    `mine` are this rank's rows, CSR. Every rank gets the same bits.
    """
    (rows,), curvature = problem.m, problem.curvature
    worst, whole = _worst_row(mine), _squared_norm(mine) / rows
    # The norm of a sum is at most the sum of the norms, so this L is an upper bound.
    smooth = curvature * float(comm.all_reduce(np.array([whole]))[0]) + problem.l2
    worst = curvature * float(comm.all_reduce(np.array([worst]), op="max")[0]) + problem.l2
    batch = min(batch, rows)
    if batch == rows:
        return smooth
    return (rows * (batch - 1) * smooth + (rows - batch) * worst) / (batch * (rows - 1))


def _worst_row(rows: Rows) -> float:
    """The largest squared length of a row; 0 where there is none."""
    squares = rows.multiply(rows).sum(axis=1)
    return float(squares.max(initial=0.0))


def _squared_norm(rows: Rows) -> float:
    """The largest eigenvalue of rows.T @ rows."""
    small = min(rows.shape)
    if small < 3:
        # Too small for the Lanczos method, which needs room for its vectors.
        norm = np.linalg.norm(rows.toarray(), 2) if small and rows.nnz else 0.0
    else:
        # A fixed start: the result must not differ from run to run.
        start = np.ones(small)
        norm = svds(rows, k=1, v0=start, tol=1e-3, return_singular_vectors=False)[0]
    return float(norm) ** 2
