"""Operators of the coefficients of a discrete cosine transform, by chunks of a vector."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire import _core
from sparsewire.compress.compressor import Compressor, Wrapper
from sparsewire.compress.draws import Draws
from sparsewire.compress.largest import SpanTopK
from sparsewire.compress.marks import Blocks
from sparsewire.errors import CompressError

_LARGEST_SIDE = 256
_DIGITS = 40
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582")

Matrix = NDArray[np.float64]


class Cosines:
    """The transform of vectors of `dimension` elements, in chunks of `side` rows of `side`.

    A chunk X becomes D X D^T, where D is the orthonormal DCT-II: D_ji = sqrt((2 - [j = 0])/side)
    cos(pi (2i + 1) j / (2 side)). Zeros fill up the last chunk. Sums are made in float64, in one
    order, and rounded once, by a matrix that is exact to the last bit, so that results have the
    same bits on every machine. A fast transform would take fewer steps.
    """

    def __init__(self, dimension: int, side: int) -> None:
        if not 1 <= side <= _LARGEST_SIDE:
            raise CompressError(f"a side must be 1 to {_LARGEST_SIDE}, not {side}")
        self.dimension = dimension
        self.side = side
        self.coefficients = -(-dimension // side**2) * side**2
        self._matrix = _cosine_matrix(side)
        self._transposed = np.ascontiguousarray(self._matrix.T)

    def forward(self, x: NDArray[Any]) -> NDArray[Any]:
        """The coefficients, shape (coefficients,), of x, shape (dimension,), in its dtype."""
        result = np.empty(self.coefficients, x.dtype)
        _core.transform_chunks(x, self.side, self._matrix, self._transposed, result)
        return result

    def inverse(self, coefficients: NDArray[Any]) -> NDArray[Any]:
        """The vector, shape (dimension,), of coefficients, shape (coefficients,)."""
        result = np.empty(self.dimension, coefficients.dtype)
        _core.transform_chunks(coefficients, self.side, self._transposed, self._matrix, result)
        return result


class InCosines(Wrapper):
    """D^T C(D x), where D is the transform of `Cosines` and C, `inner`, takes its coefficients.

    omega and contraction are those of C, because D is orthonormal; what is behind the end of the
    last chunk is dropped, which makes no error larger. The code is that of C, of coefficients. So
    codes of several ranks may be added as those of C, and `cosines.inverse` of their sum taken
    once.
    """

    def __init__(self, dimension: int, inner: Compressor, side: int = 64) -> None:
        super().__init__(inner, dimension)
        self.cosines = Cosines(dimension, side)
        if inner.dimension != self.cosines.coefficients:
            raise CompressError(
                f"the operator of the coefficients must take {self.cosines.coefficients} of them, "
                f"not {inner.dimension}"
            )
        # With this margin no element of a result can overflow, though elements get twice as large.
        self._largest_safe = float(np.finfo(self.dtype).max) / (4 * side)

    def with_inner(self, make: Callable[[Compressor], Compressor]) -> InCosines:
        """The same with another operator, made of the inner one."""
        return InCosines(self.dimension, make(self.inner), self.cosines.side)

    def draw(self, x: NDArray[Any], draws: Draws) -> Any:
        coefficients = self.cosines.forward(x)
        largest = float(Blocks(coefficients.size).norms(coefficients, np.inf)[0])
        if not largest <= self._largest_safe:
            raise CompressError(f"the vector is too large for coefficients in {self.dtype}")
        return self.inner.draw(coefficients, draws)

    def reconstruct(self, code: Any) -> NDArray[Any]:
        return self.cosines.inverse(self.inner.reconstruct(code))


def dct_top_k(dimension: int, k: int, side: int = 64, dtype: DTypeLike = np.float32) -> InCosines:
    """The k largest coefficients of each chunk of `side` x `side` elements. Biased.

    What DeMo sends of its momentum (Peng, Quesnelle, Kingma, arXiv 2411.19870). contraction =
    k/side^2.
    """
    coefficients = Cosines(dimension, side).coefficients
    return InCosines(dimension, SpanTopK(coefficients, k, side**2, dtype), side)


@lru_cache
def _cosine_matrix(side: int) -> Matrix:
    """D, row by row; all elements are multiples of cosines of the first quarter turn."""
    with localcontext(Context(_DIGITS, ROUND_HALF_EVEN)):
        quarter = [*(_cosine(_PI * m / (2 * side)) for m in range(side)), Decimal(0)]
        rest = (Decimal(2) / side).sqrt()
        table = [float(rest * each) for each in quarter]
        first = float((Decimal(1) / side).sqrt())
    matrix = np.array([[_at(table, (2 * i + 1) * j) for i in range(side)] for j in range(side)])
    matrix[0] = first
    return matrix


def _at(table: list[float], multiple: int) -> float:
    """The cosine of so many steps, from those of a quarter turn, the last of which is zero."""
    side = len(table) - 1
    folded = multiple % (4 * side)
    folded = min(folded, 4 * side - folded)
    return table[folded] if folded <= side else -table[2 * side - folded]


def _cosine(angle: Decimal) -> Decimal:
    """By its series, in the precision of the context."""
    total, term, n = Decimal(0), Decimal(1), 0
    while abs(term) > Decimal(10) ** (-_DIGITS):
        total += term
        n += 2
        term *= -angle * angle / (n * (n - 1))
    return total
