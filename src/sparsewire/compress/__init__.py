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
from sparsewire.compress.cosines import Cosines, InCosines, dct_top_k
from sparsewire.compress.dithering import QSGD, Dithering, NaturalDithering, Ternary
from sparsewire.compress.draws import Draws
from sparsewire.compress.fp4 import Fp4
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
from sparsewire.compress.visible import Visible
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
    "Cosines",
    "Dithering",
    "Draws",
    "Fp4",
    "Identity",
    "InCosines",
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
    "Visible",
    "as_contraction",
    "certificate",
    "dct_top_k",
    "names",
    "parse",
    "usages",
]
