"""Operators by name: "rand-k:0.05", "natural+top-k:100", "0.5*identity|0.5*bernoulli:0.1"."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from sparsewire.compress.centroids import Centroids
from sparsewire.compress.composition import Composition, KeptComposition, Mixture, kept_elements
from sparsewire.compress.compressor import Compressor, Identity
from sparsewire.compress.cosines import InCosines, dct_top_k
from sparsewire.compress.dithering import QSGD, Dithering, NaturalDithering, Ternary
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
from sparsewire.compress.marks import Blocks
from sparsewire.compress.natural import Natural
from sparsewire.compress.seeded import Bernoulli, BlockRandomK, RandK
from sparsewire.compress.sparsifier import Sparsifier
from sparsewire.compress.visible import Visible
from sparsewire.errors import CompressError

_BLOCK = 256
_SPAN = 512
_SIDE = 64


class Entry(NamedTuple):
    """One operator: its constructor, the settings behind its name, and one line on what it does.

    Settings in brackets may be left out."""

    kind: Callable[..., Compressor]
    settings: str
    help: str

    def build(self, texts: list[str], dimension: int, dtype: DTypeLike) -> Compressor:
        """The operator with settings as they were written."""
        given = _read(self.settings, texts)
        if "k" in given:
            given["k"] = _share("K", given["k"], self._choices(dimension, given))
        return self.kind(dimension, **given, dtype=dtype)

    def _choices(self, dimension: int, given: dict[str, Any]) -> int:
        """The number of elements or blocks that K may be a fraction of."""
        if "SPAN" in self.settings:
            return int(given.get("span", _SPAN))
        if "SIDE" in self.settings:
            return int(given.get("side", _SIDE)) ** 2
        if "BLOCK" in self.settings:
            return Blocks(dimension, given.get("block", _BLOCK)).count
        return dimension


def parse(text: str, dimension: int, dtype: DTypeLike = np.float32) -> Compressor:
    """The operator that `text` names, for vectors of `dimension` elements.

    "a+b" is a after b, of only the elements that b keeps where b always keeps as many, and of the
    coefficients of a transform; "P*a|Q*b" is a with probability P and else b. Raises CompressError
    that says what is allowed.
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
    """The usage of each operator, and one line on what it does."""
    return {name + entry.settings: entry.help for name, entry in _ENTRIES.items()}


def _composition(texts: list[str], dimension: int, dtype: DTypeLike) -> Compressor:
    result = _single(texts[-1], dimension, dtype)
    for text in reversed(texts[:-1]):
        result = _after(text, result)
    return result


def _after(text: str, inner: Compressor) -> Compressor:
    """The operator of this name after the inner one; of its coefficients, where it has these."""
    if isinstance(inner, InCosines):
        return inner.with_inner(lambda of_coefficients: _after(text, of_coefficients))
    kept = kept_elements(inner)
    if kept is not None and isinstance(inner, Sparsifier):
        return KeptComposition(_single(text, kept, inner.dtype), inner)
    return Composition(_single(text, inner.dimension, inner.dtype), inner)


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
    "centroids": Entry(
        Centroids, "[:SPAN]", "two magnitudes of each span of 512, and signs; biased"
    ),
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
    "fp4": Entry(Fp4, "[:SPAN]", "zero and seven powers of two, by spans of 512; biased"),
    "dct-top-k": Entry(
        dct_top_k, ":K[:SIDE]", "the K largest cosines of each 64 x 64 elements; biased"
    ),
    "visible": Entry(Visible, "[:RATE]", "what changes a parameter's bfloat16, RATE times; biased"),
    "low-rank": Entry(
        LowRank, ":RANK[:ROWS]", "the vector as a matrix of low rank (PowerSGD); biased"
    ),
}


def _read(pattern: str, texts: list[str]) -> dict[str, Any]:
    """Arguments of a constructor, from settings in the order of a pattern such as ":LEVELS[:NORM]".

    Raises CompressError for settings that are missing, too many, or no numbers.
    """
    settings = re.findall(r"(\[?):([A-Z]+)", pattern)
    if len(texts) > len(settings):
        raise CompressError(f"{texts[len(settings)]!r} is one setting too many")
    for is_optional, what in settings[len(texts) :]:
        if not is_optional:
            raise CompressError(f"{what} is missing")
    given = {}
    for (_, what), text in zip(settings, texts, strict=False):
        parameter, convert = _PARAMETERS[what]
        given[parameter] = convert(what, text)
    return given


def _share(what: str, text: str, total: int) -> int:
    """A number of `total`, from a whole number or a fraction such as 0.05; at least 1."""
    if text.isdecimal():
        return int(text)
    fraction = _number(what, text)
    if not 0 < fraction <= 1:
        raise CompressError(f"{what} must be a whole number or a fraction in (0, 1], not {text}")
    return max(1, round(fraction * total))


def _integer(what: str, text: str) -> int:
    if not text.isdecimal():
        raise CompressError(f"{what} must be a whole number, not {text!r}")
    return int(text)


def _number(what: str, text: str) -> float:
    """A number; "inf" is one."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise CompressError(f"{what} must be a number, not {text!r}")
    return number


_PARAMETERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "K": ("k", lambda _, text: text),  # What it is a share of may come behind it.
    "P": ("probability", _number),
    "T": ("threshold", _number),
    "LEVELS": ("levels", _integer),
    "BITS": ("bits", _integer),
    "NORM": ("power", _number),
    "BLOCK": ("block", _integer),
    "SPAN": ("span", _integer),
    "SIDE": ("side", _integer),
    "RATE": ("rate", _number),
    "RANK": ("rank", _integer),
    "ROWS": ("rows", _integer),
}
