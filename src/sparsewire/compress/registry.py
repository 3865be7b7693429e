"""Operators by name: "rand-k:0.05", "natural+top-k:100", "0.5*identity|0.5*bernoulli:0.1"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
from sparsewire.compress.settings import read, share
from sparsewire.compress.sign import Sign
from sparsewire.compress.sparsifier import Sparsifier
from sparsewire.compress.ternary import Ternary
from sparsewire.compress.threshold import BlockThreshold, Threshold
from sparsewire.compress.top_k import BlockTopK, BlockTopKRatio, SpanTopK, TopK
from sparsewire.errors import CompressError

_BLOCK = 256
_SPAN = 512


class Entry(NamedTuple):
    """One operator: what makes it, the settings behind its name, in brackets where they may be left
    out, and what it does."""

    kind: Callable[..., Compressor]
    settings: str
    help: str

    def build(self, texts: list[str], dimension: int, dtype: DTypeLike) -> Compressor:
        """The operator with settings as they were written."""
        given = read(self.settings, texts)
        if "k" in given:
            given["k"] = share("K", given["k"], self._choices(dimension, given))
        return self.kind(dimension, **given, dtype=dtype)

    def _choices(self, dimension: int, given: dict[str, Any]) -> int:
        """Of how many elements or blocks K may be a fraction."""
        if "SPAN" in self.settings:
            return int(given.get("span", _SPAN))
        if "BLOCK" in self.settings:
            return Blocks(dimension, given.get("block", _BLOCK)).count
        return dimension


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
    return {name + entry.settings: entry.help for name, entry in _ENTRIES.items()}


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
    usage = name + _ENTRIES[name].settings
    try:
        return _ENTRIES[name].build(texts, dimension, dtype)
    except CompressError as error:
        raise CompressError(f"{error}; write {usage}") from None


_ENTRIES: dict[str, Entry] = {
    "identity": Entry(Identity, "", "everything"),
    "rand-k": Entry(RandK, ":K", "K elements, or a fraction, at random; unbiased"),
    "bernoulli": Entry(
        Bernoulli, ":P[:BLOCK]", "all elements, or blocks, with probability P; unbiased"
    ),
    "ternary": Entry(
        Ternary, "[:NORM[:BLOCK]]", "the norm (2 or inf) of blocks, and -1, 0, 1; unbiased"
    ),
    "dithering": Entry(
        Dithering,
        ":LEVELS[:NORM[:BLOCK]]",
        "fractions of the norm of blocks, rounded at random; unbiased",
    ),
    "qsgd": Entry(QSGD, ":LEVELS[:SPAN]", "l2 dithering by spans of 512; unbiased"),
    "natural": Entry(Natural, "", "powers of two, rounded at random; unbiased"),
    "natural-dithering": Entry(
        NaturalDithering,
        ":LEVELS[:NORM[:BLOCK]]",
        "the norm of blocks times powers of two, rounded at random; unbiased",
    ),
    "top-k": Entry(TopK, ":K", "the K largest elements, or a fraction; biased"),
    "span-top-k": Entry(
        SpanTopK, ":K[:SPAN]", "the K largest elements of each span of 512; biased"
    ),
    "rounded": Entry(Rounded, ":BITS[:SPAN]", "the nearest multiples of a power of two; biased"),
    "threshold": Entry(Threshold, ":T", "elements of magnitude at least T; biased"),
    "sign": Entry(Sign, "[:BLOCK]", "the mean magnitude of blocks, and signs; biased"),
    "block-random-k": Entry(
        BlockRandomK, ":K[:BLOCK]", "K blocks of 256, or a fraction, at random; unbiased"
    ),
    "block-top-k": Entry(BlockTopK, ":K[:BLOCK]", "the K blocks of largest norm; biased"),
    "block-top-k-ratio": Entry(
        BlockTopKRatio,
        ":K[:BLOCK]",
        "the K blocks of largest norm relative to the parameters; biased",
    ),
    "block-threshold": Entry(BlockThreshold, ":T[:BLOCK]", "blocks of norm at least T; biased"),
    "low-rank": Entry(
        LowRank, ":RANK[:ROWS]", "the vector as a matrix of low rank (PowerSGD); biased"
    ),
}
