"""Low rank: the vector as a matrix, projected to few directions by one power iteration."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Blocks
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.errors import CompressError

_TILE = 1 << 15
"""Elements of a matrix that are made in one go."""

_LEAST = 2.0**-20
"""Vectors whose largest magnitude is below, or above the inverse, are scaled."""


class Factors(NamedTuple):
    """The code: the matrix is left @ right.T, shapes (rows, rank) and (columns, rank)."""

    left: NDArray[Any]
    right: NDArray[Any]


class LowRank(Compressor):
    """C(X) = P P^T X, where P is an orthonormal basis of X Q, for a (columns, rank) start Q.

    PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1) of one worker. The vector, with
    zeros at its end, fills a matrix of `rows` rows (by default about square). Q is `start`, or is
    drawn where that is None; for a warm start set it to `next_start` of the last message. Biased.

    Without a warm start, contraction = rank/m with m = min(rows, columns). With X = U S V^T, S of
    size m, X Q spans what U S G does, where G is an orthonormal basis of a random subspace of m
    dimensions. Of ||X||^2 is kept trace((G^T S^2 G)^-1 G^T S^4 G), which is at least
    trace(G^T S^2 G), as G^T S^4 G >= (G^T S^2 G)^2, and the mean of that is rank/m ||X||^2. A warm
    start does better on vectors that change slowly, and has no such bound on others.
    """

    omega = float("inf")

    def __init__(
        self,
        dimension: int,
        rank: int,
        rows: int | None = None,
        dtype: DTypeLike = np.float32,
        start: NDArray[Any] | None = None,
    ) -> None:
        super().__init__(dimension, dtype)
        self.rows = math.isqrt(dimension - 1) + 1 if rows is None else rows
        if not 1 <= self.rows <= dimension:
            raise CompressError(f"a matrix of {dimension} elements cannot have {rows} rows")
        self.columns = -(-dimension // self.rows)
        if not 1 <= rank <= min(self.rows, self.columns):
            limit = min(self.rows, self.columns)
            raise CompressError(f"the rank must be 1 to {limit}, not {rank}")
        self.rank = rank
        self.start = start

    @property
    def contraction(self) -> float:
        return self.rank / min(self.rows, self.columns)

    def next_start(self, payload: bytes) -> NDArray[Any]:
        """The warm start, shape (columns, rank), after this message; CompressError if malformed."""
        return self.unpack(Reader(payload)).right

    def draw(self, x: NDArray[Any], draws: Draws) -> Factors:
        scale = _scale_of(x)
        matrix = self._matrix(x, scale)
        left = np.linalg.qr((matrix @ self._start(draws).astype(self.dtype)).astype(np.float64))[0]
        left = left.astype(self.dtype)
        with np.errstate(over="ignore"):
            right = (left.T @ matrix).T * self.dtype.type(scale)
        # With this margin the sum of `rank` products cannot overflow, either.
        if not float(np.abs(right).max()) <= float(np.finfo(self.dtype).max) / (2 * self.rank):
            raise CompressError(f"the vector is too large for factors in {self.dtype}")
        return Factors(left, np.ascontiguousarray(right))

    def _matrix(self, x: NDArray[Any], scale: float) -> NDArray[Any]:
        """x over `scale` as a matrix, with zeros at the end; x itself where that is the same."""
        if self.dimension == self.rows * self.columns and scale == 1:
            return x.reshape(self.rows, self.columns)
        padded = np.zeros(self.rows * self.columns, self.dtype)
        np.divide(x, self.dtype.type(scale), out=padded[: self.dimension])
        return padded.reshape(self.rows, self.columns)

    def _start(self, draws: Draws) -> NDArray[np.float64]:
        if self.start is None:
            normal = draws.generator.standard_normal((self.columns, self.rank))
            return np.linalg.qr(normal)[0]
        if self.start.shape != (self.columns, self.rank):
            raise CompressError(f"start must have shape {(self.columns, self.rank)}")
        return np.asarray(self.start, np.float64)

    def pack(self, code: Factors) -> bytes:
        return b"".join((value_bytes(code.left), value_bytes(code.right)))

    def unpack(self, reader: Reader) -> Factors:
        left = reader.values(self.rows * self.rank, self.dtype)
        right = reader.values(self.columns * self.rank, self.dtype)
        return Factors(left.reshape(self.rows, -1), right.reshape(self.columns, -1))

    def reconstruct(self, code: Factors) -> NDArray[Any]:
        values = np.empty(self.rows * self.columns, self.dtype)
        matrix = values.reshape(self.rows, self.columns)
        # A few rows at a time, which stay in a cache.
        step = max(1, _TILE // self.columns)
        directions = np.ascontiguousarray(code.right.T)
        for first in range(0, self.rows, step):
            _multiply(code.left[first : first + step], directions, matrix[first : first + step])
        return values[: self.dimension]


def _multiply(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None:
    """out = left @ right, added one by one: a matrix product rounds otherwise elsewhere."""
    np.multiply(left[:, :1], right[0], out=out)
    for k in range(1, len(right)):
        out += left[:, k : k + 1] * right[k]
    # Zero is not to have a sign.
    out += 0


def _scale_of(x: NDArray[Any]) -> float:
    """A divisor of x, mostly 1, with which no product overflows or vanishes."""
    largest = float(Blocks(x.size).norms(x, math.inf)[0])
    return 1.0 if _LEAST < largest < 1 / _LEAST or largest == 0 else largest
