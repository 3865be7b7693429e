"""Operators made into contractions, as error feedback needs them."""

from __future__ import annotations

from sparsewire.compress.composition import Composition, KeptComposition
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.contractive import Contractive
from sparsewire.compress.mixture import Mixture
from sparsewire.compress.sparsifier import SeededSparsifier, unscaled
from sparsewire.compress.threshold import Threshold
from sparsewire.errors import CompressError


def as_contraction(operator: Compressor) -> Compressor:
    """The operator with each unbiased part divided by its omega + 1; the message is the same.

    What is owed stays bounded where E||C(x) - x||^2 <= (1 - a) ||x||^2 with a > 0 (Stich,
    Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018), and may grow without end
    elsewhere. An unbiased operator has a = 1/(omega + 1) then (`Contractive`), and so has each
    unbiased part; `Composition`, `KeptComposition` and `Mixture` derive a of the whole.

    Raises CompressError where no a > 0 is known of the result, unless it is a plain threshold: what
    that drops has an absolute bound.
    """
    scaled = _scaled(operator)
    if not scaled.contraction > 0 and not isinstance(scaled, Threshold):
        raise CompressError(
            "error feedback needs a contraction, and none is known of this operator: let the "
            "biased one of two come last, as in natural+top-k:0.1, let thresholds stand alone, and "
            "give operators of your own a `contraction`"
        )
    return scaled


def _scaled(operator: Compressor) -> Compressor:
    match operator:
        case SeededSparsifier():
            return unscaled(operator)
        case Compressor(is_biased=False):
            return Contractive(operator)
        case Composition(outer=outer, inner=inner):
            return Composition(_scaled(outer), _scaled(inner))
        case KeptComposition(outer=outer, inner=inner):
            return KeptComposition(_scaled(outer), unscaled(inner))
        case Mixture(operators=operators, probabilities=probabilities):
            return Mixture([_scaled(each) for each in operators], probabilities)
    return operator
