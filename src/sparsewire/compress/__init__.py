"""Compression operators for distributed optimisation: what they send, and how much they lose."""

from sparsewire.compress.centroids import Centroids
from sparsewire.compress.certificate import certificate
from sparsewire.compress.composition import (
    Composition,
    KeptComposition,
    Mixture,
    as_contraction,
)
from sparsewire.compress.compressor import Compressor, Contractive, Identity
from sparsewire.compress.dithering import QSGD, Dithering, NaturalDithering, Ternary
from sparsewire.compress.draws import Draws
from sparsewire.compress.largest import (
    BlockThreshold,
    BlockTopK,
    BlockTopKRatio,
    SpanTopK,
    Threshold,
    TopK,
)
from sparsewire.compress.levels import Rounded, Sign
from sparsewire.compress.low_rank import LowRank
from sparsewire.compress.natural import Natural
from sparsewire.compress.registry import names, parse, usages
from sparsewire.compress.seeded import Bernoulli, BlockRandomK, RandK, Unscaled
from sparsewire.compress.sparsifier import Sparsifier
from sparsewire.errors import CompressError

__all__ = [
    "QSGD",
    "Bernoulli",
    "BlockRandomK",
    "BlockThreshold",
    "BlockTopK",
    "BlockTopKRatio",
    "Centroids",
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
    "certificate",
    "names",
    "parse",
    "usages",
]
