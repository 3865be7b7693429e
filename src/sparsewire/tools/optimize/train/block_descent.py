"""Block coordinate descent over sparse all_gather: features are divided among the ranks."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csc_array

from sparsewire import Communicator, SparseVector
from sparsewire.tools.measure.wire_limit import ring_bytes
from sparsewire.tools.optimize.problems.examples import Examples, Rows, share
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats, Integers
from sparsewire.tools.optimize.train.scores import Judged, Scores, Stopwatch, score
from sparsewire.tools.optimize.train.training import Training

BLOCK = 64


class BlockDescent:
    """Block descent: in each step every rank changes one block of its own weights, all at once.

    A rank holds the columns and the weights of its own features only, and the margins of all
    rows. What a change of weights does to the margins is sparse, since few rows have the features
    of a block. All ranks gather it from all and add it in rank order, so that their margins are the
    same bits.

    Changes of several blocks can overshoot together, as rows may have features of several. Summed
    up, they are a direction d with the effect u = X d on the margins, and for every length t

        F(w + t d) <= F(w) - t a + t^2/2 b,    a = -<gradient, d>,    b = c/n |u|^2 + l2 |d|^2.

    All ranks know u, and get a and |d|^2 with it, so they move by the best length, t = a / b, and F
    never increases. By the bound of each block, t >= 1 / ranks: it is never shorter than the step
    that is safe without knowing u (P. Richtarik and M. Takac, Math. Programming 156, 2016).
    """

    def __init__(
        self, comm: Communicator, problem: LinearModel, test: Examples, task: Training
    ) -> None:
        self._comm, self._problem = comm, problem
        (self._rows,) = problem.m
        size = task.block or BLOCK
        # Shuffled, because data often has its frequent features side by side.
        order = np.random.default_rng([task.seed, 0]).permutation(problem.dimension)
        self.columns = order[share(problem.dimension, comm.rank, comm.world_size)]
        self._test = test.features.tocsc()[:, self.columns]
        self._test_labels = test.labels
        self.steps = math.ceil(math.ceil(problem.dimension / comm.world_size) / size)
        self.dense_bytes = self.steps * ring_bytes(self._rows * 8, comm.world_size)
        """Bytes that a rank would send in an epoch to sum dense float64 margins around a ring."""
        data = problem.examples.features.tocsc()[:, self.columns]
        parts = np.array_split(np.arange(len(self.columns)), self.steps)
        self._blocks = [ColumnBlock(problem, data, part) for part in parts]
        self._random = np.random.default_rng([task.seed, 1, comm.rank])
        self.weights: Floats = np.zeros(len(self.columns))
        self.margins: Floats = np.zeros(self._rows)
        self.step_size: float | None = None
        self.communication = Stopwatch()

    def epoch(self) -> None:
        """Change every weight of every rank once; collective."""
        for number in self._random.permutation(self.steps):
            self._take_step(self._blocks[number])

    def scores(self) -> Scores:
        """Judge the current model; collective."""
        test_margins = self._comm.all_reduce(self._test @ self.weights)
        norm = float(self.weights @ self.weights)
        training = self._my_part(self.margins, self._problem.examples.labels)
        test = self._my_part(test_margins, self._test_labels)
        return score(self._comm, self._problem, training, test, norm)

    def _my_part(self, margins: Floats, labels: Floats) -> Judged:
        """Every rank has all margins, but each row must count once."""
        part = share(len(margins), self._comm.rank, self._comm.world_size)
        return margins[part], labels[part]

    def _take_step(self, block: ColumnBlock) -> None:
        weights = self.weights[block.columns]
        gradient = block.gradient(self.margins[block.rows], weights)
        change = block.minimise(gradient)
        effect, descent, squared_norm = self._gather(block, change, float(-gradient @ change))
        length = self._best_length(effect, descent, squared_norm)
        self.margins += length * effect
        self.weights[block.columns] = weights + length * change

    def _gather(
        self, block: ColumnBlock, change: Floats, descent: float
    ) -> tuple[Floats, float, float]:
        """Sum over all ranks: the effect on all margins, the descent, and |change|^2.

        The two numbers travel behind the margins, at positions of their own.
        """
        rows = self._rows
        indices = np.append(block.rows, [rows, rows + 1])
        values = np.append(block.effect(change), [descent, change @ change])
        with self.communication:
            vectors = self._comm.all_gather(SparseVector(indices, values, rows + 2))
        total = np.zeros(rows + 2)
        for vector in vectors:
            total[vector.indices] += vector.values
        return total[:rows], float(total[rows]), float(total[rows + 1])

    def _best_length(self, effect: Floats, descent: float, squared_norm: float) -> float:
        problem = self._problem
        # Not effect @ effect: BLAS adds in an order that depends on the processor.
        bend = problem.curvature / self._rows * float(np.square(effect).sum())
        bend += problem.l2 * squared_norm
        return descent / bend if bend > 0 else 0.0


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
