"""One of several operators, drawn anew for each vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marked
from sparsewire.compress.message import Reader
from sparsewire.errors import CompressError

_MOST = 256


class Drawn(NamedTuple):
    """The code: which operator, and its code."""

    number: int
    code: Any


class Mixture(Compressor):
    """Operator i with probability p_i, all of the same dimension and dtype.

    omega = sum p_i omega_i, since E||C(x)||^2 = sum p_i E||C_i(x)||^2. Where some are biased,
    contraction = sum p_i a_i, at least 0, with a_i = 1 - omega_i for the unbiased ones, as
    E||C(x) - x||^2 = sum p_i E||C_i(x) - x||^2. It is 0 where it is 0 of a biased one, of which no
    bound may be known. The message begins with a byte for i. Probabilities must sum to 1 up to
    1e-9.
    """

    def __init__(self, operators: Sequence[Compressor], probabilities: Sequence[float]) -> None:
        if not 1 <= len(operators) <= _MOST or len(operators) != len(probabilities):
            raise CompressError(f"a mixture has 1 to {_MOST} operators, a probability for each")
        first = operators[0]
        super().__init__(first.dimension, first.dtype)
        if any((o.dimension, o.dtype) != (first.dimension, first.dtype) for o in operators):
            raise CompressError("the operators of a mixture must have one dimension and dtype")
        if min(probabilities) < 0 or not math.isclose(sum(probabilities), 1, abs_tol=1e-9):
            raise CompressError(f"probabilities must sum to 1, unlike {list(probabilities)}")
        self.operators = tuple(operators)
        self.probabilities = tuple(probabilities)
        self._limits = np.cumsum(probabilities)

    @property
    def omega(self) -> float:
        return sum(p * o.omega for p, o in self._possible())

    @property
    def contraction(self) -> float:
        if not self.is_biased:
            return super().contraction
        possible = self._possible()
        if any(o.is_biased and not o.contraction > 0 for _, o in possible):
            return 0.0
        kept = sum(p * (o.contraction if o.is_biased else 1 - o.omega) for p, o in possible)
        return max(0.0, kept)

    def _possible(self) -> list[tuple[float, Compressor]]:
        pairs = zip(self.probabilities, self.operators, strict=True)
        return [(p, operator) for p, operator in pairs if p > 0]

    def draw(self, x: NDArray[Any], draws: Draws) -> Drawn:
        at = (draws.key() >> 11) * 2.0**-53 * self._limits[-1]
        number = int(np.searchsorted(self._limits[:-1], at, side="right"))
        return Drawn(number, self.operators[number].draw(x, draws))

    def pack(self, code: Drawn) -> bytes:
        return b"".join((bytes([code.number]), self.operators[code.number].pack(code.code)))

    def unpack(self, reader: Reader) -> Drawn:
        number = reader.view(1)[0]
        if number >= len(self.operators):
            raise CompressError(f"malformed message: there is no operator {number}")
        return Drawn(number, self.operators[number].unpack(reader))

    def reconstruct(self, code: Drawn) -> NDArray[Any]:
        return self.operators[code.number].reconstruct(code.code)

    def add(self, code: Drawn, total: NDArray[Any], factor: float = 1.0) -> None:
        self.operators[code.number].add(code.code, total, factor)

    def marked(self, code: Drawn) -> Marked | None:
        return self.operators[code.number].marked(code.code)
