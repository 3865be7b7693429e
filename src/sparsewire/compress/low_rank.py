"""Low rank: the vector as a matrix, projected to few directions by one power iteration."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.errors import CompressError
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.compress.stream import Stream


class Factors(NamedTuple):
    """The code: the matrix is left @ right.T, shapes (rows, rank) and (columns, rank)."""

    left: NDArray[Any]
    right: NDArray[Any]


class LowRank(Compressor):
    """C(X) = P P^T X, where P is an orthonormal basis of X Q, for a (columns, rank) start Q.

    PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1) of one worker. The vector, with
    zeros at its end, fills a matrix of `rows` rows (by default about square). Q is `start`, or is
    drawn where that is None; for a warm start set it to `next_start` of the last message. Biased.

    Without a warm start, contraction = rank/columns: what is kept is at least ||X Q||^2 of an
    orthonormal random Q, of which the mean is rank/columns ||X||^2. A warm start does better on
    vectors that change slowly, and has no such bound on others.
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
        return self.rank / self.columns

    def next_start(self, payload: bytes) -> NDArray[Any]:
        """The warm start, shape (columns, rank), after this message; CompressError if malformed."""
        return self.unpack(Reader(payload)).right

    def draw(self, x: NDArray[Any], stream: Stream) -> Factors:
        # Scaled to at most 1, so that no product overflows.
        scale = float(np.abs(x).max()) or 1.0
        padded = np.zeros(self.rows * self.columns)
        padded[: self.dimension] = x / np.float64(scale)
        matrix = padded.reshape(self.rows, self.columns)
        left = np.linalg.qr(matrix @ self._start(stream))[0]
        right = matrix.T @ left
        with np.errstate(over="ignore"):
            factors = Factors(left.astype(self.dtype), (right * scale).astype(self.dtype))
        # With this margin the sum of `rank` products cannot overflow, either.
        if float(np.abs(factors.right).max()) > float(np.finfo(self.dtype).max) / (2 * self.rank):
            raise CompressError(f"the vector is too large for factors in {self.dtype}")
        return factors

    def _start(self, stream: Stream) -> NDArray[np.float64]:
        if self.start is None:
            normal = stream.generator.standard_normal((self.columns, self.rank))
            return np.linalg.qr(normal)[0]
        if self.start.shape != (self.columns, self.rank):
            raise CompressError(f"start must have shape {(self.columns, self.rank)}")
        return np.asarray(self.start, np.float64)

    def pack(self, code: Factors) -> bytes:
        return value_bytes(code.left) + value_bytes(code.right)

    def unpack(self, reader: Reader) -> Factors:
        left = reader.values(self.rows * self.rank, self.dtype)
        right = reader.values(self.columns * self.rank, self.dtype)
        return Factors(left.reshape(self.rows, -1), right.reshape(self.columns, -1))

    def reconstruct(self, code: Factors) -> NDArray[Any]:
        # Added one by one: a matrix product rounds differently from one library to the next.
        matrix: NDArray[Any] = np.zeros((self.rows, self.columns), self.dtype)
        for left, right in zip(code.left.T, code.right.T, strict=True):
            matrix += np.outer(left, right)
        return np.array(matrix.reshape(-1)[: self.dimension])
