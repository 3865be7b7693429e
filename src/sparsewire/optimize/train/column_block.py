"""A few columns of the data: their partial gradients, and how far it is safe to move along them."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array

from sparsewire.optimize.problems.linear_model import LinearModel
from sparsewire.optimize.problems.problem import Floats, Integers
from sparsewire.optimize.problems.sources import Rows


class ColumnBlock:
    """Columns `columns` of a CSC array, with the rows left out in which all of them are zero.

    `rows` (m,) are those that remain, ascending. `curvature` (columns,) are numbers v with

        F(w + d) <= F(w) + <gradient, d> + 1/2 sum_j v_j d_j^2    for every d in these columns:

    v_j = c/n sum_i k_i x_ij^2 + l2, where c bounds the loss's second derivative and k_i counts the
    non-zeros of row i in the block. It is the expected separable overapproximation of P. Richtarik
    and M. Takac, "Parallel coordinate descent methods for big data optimization" (Math. Programming
    156, 2016), with the row by row counts of O. Fercoq and P. Richtarik (SIAM J. Optim. 25, 2015),
    for a block that is always updated as a whole, so that it holds without expectation.
    """

    def __init__(self, problem: LinearModel, data: Rows, columns: Integers) -> None:
        self._problem = problem
        self.columns = columns
        block = data[:, columns]
        self.rows, compact = np.unique(block.indices, return_inverse=True)
        shape = (len(self.rows), len(columns))
        self._matrix = csc_array((block.data, compact, block.indptr), shape=shape)
        self._transposed = self._matrix.T.tocsr()
        counts = np.bincount(compact, minlength=len(self.rows)).astype(np.float64)
        squares = self._transposed.power(2) @ counts
        (self._all_rows,) = problem.m
        self._labels = problem.examples.labels[self.rows]
        self.curvature: Floats = problem.curvature / self._all_rows * squares + problem.l2

    def gradient(self, margins: Floats, weights: Floats) -> Floats:
        """The exact partial derivatives of F by the block's weights, both of shape (columns,).

        `margins` are those of `rows`.
        """
        slopes = self._problem.slopes(margins, self._labels)
        result: Floats = self._transposed @ slopes / self._all_rows + self._problem.l2 * weights
        return result

    def minimise(self, gradient: Floats) -> Floats:
        """The change of the weights that the bound above says is best."""
        movable = self.curvature > 0
        return -np.divide(gradient, self.curvature, where=movable, out=np.zeros_like(gradient))

    def effect(self, change: Floats) -> Floats:
        """How the margins of `rows` change with the weights."""
        result: Floats = self._matrix @ change
        return result
