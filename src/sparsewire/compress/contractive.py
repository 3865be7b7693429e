"""An unbiased operator scaled down, for methods with error feedback."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.draws import Draws
from sparsewire.compress.message import Reader


class Contractive(Compressor):
    """C(x)/(omega + 1): biased, and of all multiples of an unbiased C the one with the best bound.

    contraction = 1/(omega + 1): with b = 1/(omega + 1), E||b C(x) - x||^2 = b^2 E||C(x)||^2 + (1 -
    2b) ||x||^2 <= (1 - b) ||x||^2 (Beznosikov et al., On biased compression for distributed
    learning, arXiv 2002.12410). The message is that of C. A biased operator is left as it is.
    """

    omega = float("inf")

    def __init__(self, inner: Compressor) -> None:
        super().__init__(inner.dimension, inner.dtype)
        self.inner = inner
        self._factor = self.dtype.type(1 if inner.is_biased else inner.contraction)

    @property
    def contraction(self) -> float:
        return self.inner.contraction

    def draw(self, x: NDArray[Any], draws: Draws) -> Any:
        return self.inner.draw(x, draws)

    def pack(self, code: Any) -> bytes:
        return self.inner.pack(code)

    def unpack(self, reader: Reader) -> Any:
        return self.inner.unpack(reader)

    def reconstruct(self, code: Any) -> NDArray[Any]:
        scaled: NDArray[Any] = self.inner.reconstruct(code) * self._factor
        return scaled
