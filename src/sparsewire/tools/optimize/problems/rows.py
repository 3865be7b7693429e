"""The rows of all workers as one array, dense or sparse, for `LinearModel`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from sparsewire.tools.optimize.problems.examples import Rows
from sparsewire.tools.optimize.problems.problem import Floats, Integers


class DenseRows:
    """`rows` (all, dimension): those of worker i from `starts[i]` up to `starts[i + 1]`."""

    def __init__(self, rows: Floats, starts: Integers) -> None:
        self._rows = rows
        self._parts = [rows[start:end] for start, end in pairwise(starts)]

    def margins(self, workers: Sequence[int], x: Floats) -> Floats:
        """The products of x with all rows of these workers, one worker after the other."""
        return np.concatenate([self._parts[i] @ x for i in workers])

    def weighted_sums(self, workers: Sequence[int], weights: Floats) -> Floats:
        """The sum of each worker's rows times `weights`: (len(workers), dimension)."""
        sums, start = np.empty((len(workers), self._rows.shape[1])), 0
        for result, i in zip(sums, workers, strict=True):
            end = start + len(self._parts[i])
            np.dot(weights[start:end], self._parts[i], out=result)
            start = end
        return sums

    def picked_margins(self, rows: Integers, x: Floats) -> Floats:
        """The products of x with single rows."""
        # A matrix product may round a row differently beside other rows; this does not.
        margins: Floats = (self._rows[rows] * x).sum(axis=1)
        return margins

    def picked_sums(self, rows: Integers, weights: Floats, batch: int) -> Floats:
        """Single rows times `weights`, summed up in groups of `batch`."""
        products = weights[:, np.newaxis] * self._rows[rows]
        sums: Floats = products.reshape(-1, batch, self._rows.shape[1]).sum(axis=1)
        return sums

    def squared_lengths(self) -> Floats:
        """The squared length of every row."""
        lengths: Floats = np.einsum("ij,ij->i", self._rows, self._rows)
        return lengths

    def weighted(self, weights: Floats) -> Floats:
        """All rows, each times its weight."""
        weighted: Floats = weights[:, np.newaxis] * self._rows
        return weighted

    def gram(self, weights: Floats) -> Floats:
        """The sum over all rows a of weight a a^T: (dimension, dimension)."""
        gram: Floats = self._rows.T @ self.weighted(weights)
        return gram


class SparseRows:
    """As `DenseRows`, for rows in CSR form.

    Several workers' sums come from one product with a matrix in which each worker has columns of
    its own. SciPy adds row by row, so the bits do not depend on the other workers.
    """

    def __init__(self, rows: Rows, starts: Integers) -> None:
        self._rows, self._starts = rows, starts
        self._side_by_side: dict[tuple[int, ...], tuple[Rows, Rows]] = {}

    def margins(self, workers: Sequence[int], x: Floats) -> Floats:
        margins: Floats = self._stacked(workers)[0] @ np.tile(x, len(workers))
        return margins

    def weighted_sums(self, workers: Sequence[int], weights: Floats) -> Floats:
        sums: Floats = (self._stacked(workers)[1] @ weights).reshape(len(workers), -1)
        return sums

    def picked_margins(self, rows: Integers, x: Floats) -> Floats:
        entries, owners = self._entries(rows)
        products = self._rows.data[entries] * x[self._rows.indices[entries]]
        return np.asarray(np.bincount(owners, products, len(rows)), np.float64)

    def picked_sums(self, rows: Integers, weights: Floats, batch: int) -> Floats:
        entries, owners = self._entries(rows)
        dimension, groups = self._rows.shape[1], len(rows) // batch
        places = owners // batch * dimension + self._rows.indices[entries]
        products = weights[owners] * self._rows.data[entries]
        sums = np.asarray(np.bincount(places, products, groups * dimension), np.float64)
        return sums.reshape(groups, dimension)

    def squared_lengths(self) -> Floats:
        lengths: Floats = self._rows.multiply(self._rows).sum(axis=1)
        return lengths

    def weighted(self, weights: Floats) -> Rows:
        counts = np.diff(self._rows.indptr)
        data = self._rows.data * np.repeat(weights, counts)
        return csr_array((data, self._rows.indices, self._rows.indptr), self._rows.shape)

    def gram(self, weights: Floats) -> Floats:
        gram: Floats = (self._rows.T @ self.weighted(weights)).toarray()
        return gram

    def _entries(self, rows: Integers) -> tuple[Integers, Integers]:
        """Indices of these rows' values, and the row that each value belongs to."""
        starts = self._rows.indptr[rows]
        counts = self._rows.indptr[rows + 1] - starts
        ends = np.cumsum(counts)
        owners = np.repeat(np.arange(len(rows)), counts)
        return np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts), owners

    def _stacked(self, workers: Sequence[int]) -> tuple[Rows, Rows]:
        """The rows of these workers, each worker in columns of its own, and its transpose."""
        key = tuple(workers)
        if key not in self._side_by_side:
            stacked = self._stack(key)
            self._side_by_side[key] = stacked, stacked.T
        return self._side_by_side[key]

    def _stack(self, workers: tuple[int, ...]) -> Rows:
        starts, dimension = self._starts, self._rows.shape[1]
        parts = [np.arange(starts[i], starts[i + 1]) for i in workers]
        rows = self._rows[np.concatenate(parts)]
        columns = np.repeat(np.arange(len(workers)) * dimension, [len(part) for part in parts])
        indices = rows.indices + np.repeat(columns, np.diff(rows.indptr))
        shape = (rows.shape[0], len(workers) * dimension)
        return csr_array((rows.data, indices, rows.indptr), shape)
