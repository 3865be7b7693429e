"""Compression operators for distributed optimisation: what they send, and how much they lose."""

from typing import Any

from sparsewire.compress.bernoulli import Bernoulli
from sparsewire.compress.composition import Composition, KeptComposition
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.contraction import as_contraction
from sparsewire.compress.contractive import Contractive
from sparsewire.compress.dithering import QSGD, Dithering
from sparsewire.compress.draws import Draws
from sparsewire.compress.identity import Identity
from sparsewire.compress.low_rank import LowRank
from sparsewire.compress.mixture import Mixture
from sparsewire.compress.natural import Natural
from sparsewire.compress.natural_dithering import NaturalDithering
from sparsewire.compress.rand_k import BlockRandomK, RandK
from sparsewire.compress.registry import names, parse, usages
from sparsewire.compress.rounded import Rounded
from sparsewire.compress.sign import Sign
from sparsewire.compress.sparsifier import Sparsifier, Unscaled
from sparsewire.compress.ternary import Ternary
from sparsewire.compress.threshold import BlockThreshold, Threshold
from sparsewire.compress.top_k import BlockTopK, BlockTopKRatio, SpanTopK, TopK
from sparsewire.errors import CompressError
from sparsewire.moved import warn_of

__all__ = [
    "QSGD",
    "Bernoulli",
    "BlockRandomK",
    "BlockThreshold",
    "BlockTopK",
    "BlockTopKRatio",
    "Composition",
    "CompressError",
    "Compressor",
    "Contractive",
    "Dithering",
    "Draws",
    "Identity",
    "KeptComposition",
    "LowRank",
    "Mixture",
    "Natural",
    "NaturalDithering",
    "RandK",
    "Rounded",
    "Sign",
    "SpanTopK",
    "Sparsifier",
    "Ternary",
    "Threshold",
    "TopK",
    "Unscaled",
    "as_contraction",
    "names",
    "parse",
    "usages",
]


def __getattr__(name: str) -> Any:
    if name == "Stream":
        warn_of("sparsewire.compress.Stream", "sparsewire.compress.Draws")
        return Draws
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
