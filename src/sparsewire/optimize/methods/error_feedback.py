"""What the methods with error feedback share: they take every compressor, biased ones included."""

from __future__ import annotations

from sparsewire.compress.composition import as_contraction
from sparsewire.compress.compressor import Compressor
from sparsewire.optimize.methods.method import Method


class ErrorFeedback(Method):
    """A method over contractive maps: E|C(x) - x|^2 <= (1 - a) |x|^2, a = `self.contraction`.

    Unbiased compressors are no contractions, so that `as_contraction` of each takes its place; it
    raises CompressError, which is a ValueError, where no contraction is known.
    """

    def _adapted(self, compressor: Compressor) -> Compressor:
        return as_contraction(compressor)

    def _require_contraction(self) -> None:
        if not self.contraction > 0:
            raise ValueError("no contraction is known of this compressor: pass gamma")
