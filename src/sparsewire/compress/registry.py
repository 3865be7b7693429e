"""Operators by name: "rand-k:0.05", "natural+top-k:100", "0.5*identity|0.5*bernoulli:0.1"."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from sparsewire.compress.bernoulli import Bernoulli
from sparsewire.compress.blocks import Blocks
from sparsewire.compress.composition import Composition, KeptComposition, kept_elements
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.dithering import QSGD, Dithering
from sparsewire.compress.identity import Identity
from sparsewire.compress.low_rank import LowRank
from sparsewire.compress.mixture import Mixture
from sparsewire.compress.natural import Natural
from sparsewire.compress.natural_dithering import NaturalDithering
from sparsewire.compress.rand_k import BlockRandomK, RandK
from sparsewire.compress.rounded import Rounded
from sparsewire.compress.settings import Settings
from sparsewire.compress.sign import Sign
from sparsewire.compress.sparsifier import Sparsifier
from sparsewire.compress.ternary import Ternary
from sparsewire.compress.threshold import BlockThreshold, Threshold
from sparsewire.compress.top_k import BlockTopK, BlockTopKRatio, SpanTopK, TopK
from sparsewire.errors import CompressError

Build = Callable[[Settings, int, DTypeLike], Compressor]

_BLOCK = 256
_SPAN = 512


class Entry(NamedTuple):
    """One operator: how its name is written with settings, what it does, and how it is made."""

    usage: str
    help: str
    build: Build


def parse(text: str, dimension: int, dtype: DTypeLike = np.float32) -> Compressor:
    """The operator that `text` names, for vectors of `dimension` elements.

    "a+b" is a after b, of only the elements that b keeps where b always keeps as many; "P*a|Q*b" is
    a with probability P and else b. Raises CompressError that says what is allowed.
    """
    parts = text.split("|")
    if len(parts) == 1:
        return _composition(text.split("+"), dimension, dtype)
    weighted = [_weighted(part) for part in parts]
    operators = [_composition(name.split("+"), dimension, dtype) for _, name in weighted]
    return Mixture(operators, [probability for probability, _ in weighted])


def names() -> list[str]:
    """The names of all operators, without settings."""
    return list(_ENTRIES)


def usages() -> dict[str, str]:
    """For each operator, how it is written, and one line on what it does."""
    return {entry.usage: entry.help for entry in _ENTRIES.values()}


def _composition(texts: list[str], dimension: int, dtype: DTypeLike) -> Compressor:
    result = _single(texts[-1], dimension, dtype)
    for text in reversed(texts[:-1]):
        kept = kept_elements(result)
        if kept is not None and isinstance(result, Sparsifier):
            result = KeptComposition(_single(text, kept, dtype), result)
        else:
            result = Composition(_single(text, dimension, dtype), result)
    return result


def _weighted(text: str) -> tuple[float, str]:
    probability, star, name = text.partition("*")
    try:
        return float(probability if star else ""), name
    except ValueError:
        raise CompressError(
            f"{text.strip()!r} is no part of a mixture; write PROBABILITY*OPERATOR|..."
        ) from None


def _single(text: str, dimension: int, dtype: DTypeLike) -> Compressor:
    name, *texts = text.strip().split(":")
    if name not in _ENTRIES:
        raise CompressError(f"there is no operator {name!r}; there are {', '.join(_ENTRIES)}")
    entry = _ENTRIES[name]
    settings = Settings(texts, entry.usage)
    try:
        result = entry.build(settings, dimension, dtype)
    except CompressError as error:
        raise error if entry.usage in str(error) else settings.error(str(error)) from None
    settings.end()
    return result


def _sparse(kind: type[RandK] | type[TopK]) -> Build:
    return lambda settings, d, dtype: kind(d, settings.share("K", d), dtype=dtype)


def _block_sparse(kind: type[BlockRandomK] | type[BlockTopK]) -> Build:
    def build(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
        # K may be a fraction of the blocks, but how many there are comes after it.
        share, block = settings.text("K"), settings.integer("BLOCK", _BLOCK)
        k = settings.share_of(share, "K", Blocks(dimension, block).count)
        return kind(dimension, k, block, dtype)

    return build


def _bernoulli(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    probability = settings.number("P")
    return Bernoulli(dimension, probability, settings.optional_integer("BLOCK"), dtype)


def _ternary(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    power = settings.number("NORM", 2.0)
    return Ternary(dimension, power, settings.optional_integer("BLOCK"), dtype)


def _dithering(kind: type[Dithering] | type[NaturalDithering]) -> Build:
    def build(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
        levels, power = settings.integer("LEVELS"), settings.number("NORM", 2.0)
        return kind(dimension, levels, power, settings.optional_integer("BLOCK"), dtype)

    return build


def _qsgd(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    levels = settings.integer("LEVELS")
    return QSGD(dimension, levels, settings.integer("SPAN", _SPAN), dtype)


def _span_top_k(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    share, span = settings.text("K"), settings.integer("SPAN", _SPAN)
    return SpanTopK(dimension, settings.share_of(share, "K", span), span, dtype)


def _rounded(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    return Rounded(dimension, settings.integer("BITS"), settings.optional_integer("SPAN"), dtype)


def _block_threshold(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    threshold = settings.number("T")
    return BlockThreshold(dimension, threshold, settings.integer("BLOCK", _BLOCK), dtype)


def _low_rank(settings: Settings, dimension: int, dtype: DTypeLike) -> Compressor:
    rank = settings.integer("RANK")
    return LowRank(dimension, rank, settings.optional_integer("ROWS"), dtype)


_ENTRIES: dict[str, Entry] = {
    "identity": Entry("identity", "everything", lambda s, d, t: Identity(d, t)),
    "rand-k": Entry("rand-k:K", "K elements, or a fraction, at random; unbiased", _sparse(RandK)),
    "bernoulli": Entry(
        "bernoulli:P[:BLOCK]", "all elements, or blocks, with probability P; unbiased", _bernoulli
    ),
    "ternary": Entry(
        "ternary[:NORM[:BLOCK]]", "the norm (2 or inf) of blocks, and -1, 0, 1; unbiased", _ternary
    ),
    "dithering": Entry(
        "dithering:LEVELS[:NORM[:BLOCK]]",
        "fractions of the norm of blocks, rounded at random; unbiased",
        _dithering(Dithering),
    ),
    "qsgd": Entry("qsgd:LEVELS[:SPAN]", "l2 dithering by spans of 512; unbiased", _qsgd),
    "natural": Entry(
        "natural", "powers of two, rounded at random; unbiased", lambda s, d, t: Natural(d, t)
    ),
    "natural-dithering": Entry(
        "natural-dithering:LEVELS[:NORM[:BLOCK]]",
        "the norm of blocks times powers of two, rounded at random; unbiased",
        _dithering(NaturalDithering),
    ),
    "top-k": Entry("top-k:K", "the K largest elements, or a fraction; biased", _sparse(TopK)),
    "span-top-k": Entry(
        "span-top-k:K[:SPAN]", "the K largest elements of each span of 512; biased", _span_top_k
    ),
    "rounded": Entry(
        "rounded:BITS[:SPAN]", "the nearest multiples of a power of two; biased", _rounded
    ),
    "threshold": Entry(
        "threshold:T",
        "elements of magnitude at least T; biased",
        lambda s, d, t: Threshold(d, s.number("T"), dtype=t),
    ),
    "sign": Entry(
        "sign[:BLOCK]",
        "the mean magnitude of blocks, and signs; biased",
        lambda s, d, t: Sign(d, s.optional_integer("BLOCK"), t),
    ),
    "block-random-k": Entry(
        "block-random-k:K[:BLOCK]",
        "K blocks of 256, or a fraction, at random; unbiased",
        _block_sparse(BlockRandomK),
    ),
    "block-top-k": Entry(
        "block-top-k:K[:BLOCK]", "the K blocks of largest norm; biased", _block_sparse(BlockTopK)
    ),
    "block-top-k-ratio": Entry(
        "block-top-k-ratio:K[:BLOCK]",
        "the K blocks of largest norm relative to the parameters; biased",
        _block_sparse(BlockTopKRatio),
    ),
    "block-threshold": Entry(
        "block-threshold:T[:BLOCK]", "blocks of norm at least T; biased", _block_threshold
    ),
    "low-rank": Entry(
        "low-rank:RANK[:ROWS]", "the vector as a matrix of low rank (PowerSGD); biased", _low_rank
    ),
}
