"""What the methods with error feedback share: they take every compressor, biased ones included."""

from __future__ import annotations

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.contractive import Contractive
from sparsewire.methods.method import Method


class ErrorFeedback(Method):
    """A method over contractive maps: E|C(x) - x|^2 <= (1 - a) |x|^2, a = `self.contraction`.

    An unbiased compressor Q is no contraction, so Q / (omega + 1) takes its place.
    """

    def _adapted(self, compressor: Compressor) -> Compressor:
        return compressor if compressor.is_biased else Contractive(compressor)

    def _require_contraction(self) -> None:
        if not self.contraction > 0:
            raise ValueError("no contraction is known of this compressor: pass gamma")
