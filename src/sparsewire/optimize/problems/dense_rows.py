"""The rows of all workers as one dense array, for `LinearModel`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sparsewire.optimize.problems.problem import Floats, Integers


class DenseRows:
    """`rows` (all, dimension): those of worker i from `starts[i]` up to `starts[i + 1]`."""

    def __init__(self, rows: Floats, starts: Integers) -> None:
        self._rows = rows
        self._parts = [rows[start:end] for start, end in pairwise(starts)]

    def margins(self, workers: Sequence[int], x: Floats) -> Floats:
        """The products of x with all rows of these workers, one worker after the other."""
        return np.concatenate([self._parts[i] @ x for i in workers])

    def weighted_sums(self, workers: Sequence[int], weights: Floats) -> Floats:
        """For each worker the sum of its rows times `weights`: (len(workers), dimension)."""
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
        """Of every row."""
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
