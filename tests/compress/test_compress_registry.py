"""Operators by name: what may be written, and what is said of anything else."""

from __future__ import annotations

import numpy as np
import pytest

from sparsewire.compress import (
    QSGD,
    Bernoulli,
    BlockRandomK,
    BlockTopKRatio,
    Composition,
    CompressError,
    Contractive,
    Dithering,
    Identity,
    KeptComposition,
    LowRank,
    Mixture,
    Natural,
    RandK,
    Ternary,
    TopK,
    names,
    parse,
    usages,
)

SETTINGS = {"K": "0.5", "P": "0.5", "T": "0.5", "LEVELS": "3", "RANK": "2", "BITS": "4"}
OPTIONAL = {"NORM": "inf", "BLOCK": "8", "SPAN": "8", "ROWS": "16", "SIDE": "4", "RATE": "2"}


@pytest.mark.parametrize("usage", usages())
def test_every_usage_can_be_parsed(usage: str) -> None:
    name, *settings = usage.replace("[", "").replace("]", "").split(":")
    needed = ":".join([name, *(SETTINGS[s] for s in settings if s in SETTINGS)])
    full = ":".join([name, *({**SETTINGS, **OPTIONAL}[s] for s in settings)])
    assert name in names()
    for text in (needed, full):
        compressor = parse(text, 64, np.float64)
        assert (compressor.dimension, compressor.dtype) == (64, np.float64)
    with pytest.raises(CompressError, match="one setting too many"):
        parse(full + ":8", 64)


def test_every_operator_has_one_line_of_help() -> None:
    assert len(usages()) == len(names())
    assert all(help and "\n" not in help for help in usages().values())


def test_settings_arrive() -> None:
    rand_k = parse("rand-k:0.05", 1000)
    assert isinstance(rand_k, RandK)
    assert rand_k.kept_blocks == 50
    assert parse("rand-k:7", 1000).omega == pytest.approx(1000 / 7 - 1)
    assert parse("top-k:1", 1000).contraction == 1 / 1000, "a whole number is a count"
    assert parse("top-k:1.0", 1000).contraction == 1
    assert parse("top-k:1e-9", 1000).contraction == 1 / 1000, "at least one"
    blocks = parse("block-random-k:0.1:10", 1000)
    assert isinstance(blocks, BlockRandomK)
    assert (blocks.kept_blocks, blocks.blocks.count) == (10, 100)
    ternary = parse("ternary:inf:16", 1000)
    assert isinstance(ternary, Ternary)
    assert (ternary.power, ternary.blocks.size) == (np.inf, 16)
    dithering = parse("dithering:5:2", 1000)
    assert isinstance(dithering, Dithering)
    assert (dithering.levels, dithering.power, dithering.blocks.size) == (5, 2, 1000)
    qsgd = parse("qsgd:5", 1000)
    assert isinstance(qsgd, QSGD)
    assert qsgd.blocks.size == 512
    low_rank = parse("low-rank:3:50", 1000)
    assert isinstance(low_rank, LowRank)
    assert (low_rank.rank, low_rank.rows, low_rank.columns) == (3, 50, 20)


def test_compositions_and_mixtures() -> None:
    kept = parse("natural+rand-k:0.1", 500)
    assert isinstance(kept, KeptComposition)
    assert kept.outer.dimension == 50
    chain = parse("ternary + natural + top-k:20", 500)
    assert isinstance(chain, Composition)
    assert isinstance(chain.inner, KeptComposition)
    assert isinstance(parse("natural+threshold:1", 500), Composition)
    mixture = parse("0.25*identity|0.75*natural+rand-k:0.1", 500)
    assert isinstance(mixture, Mixture)
    assert isinstance(mixture.operators[1], KeptComposition)
    assert mixture.probabilities == (0.25, 0.75)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("randk:3", "there is no operator 'randk'; there are identity, rand-k"),
        ("", "there is no operator ''"),
        ("natural+", "there is no operator ''"),
        ("rand-k", "K is missing; write rand-k:K"),
        ("rand-k:0", "k must be 1 to 100, the number there is, not 0; write rand-k:K"),
        ("top-k:101", "k must be 1 to 100"),
        ("top-k:1.5", r"a fraction in \(0, 1\], not 1.5; write top-k:K"),
        ("top-k:-3", r"a fraction in \(0, 1\], not -3"),
        ("top-k:many", "K must be a number, not 'many'"),
        ("block-top-k:3:0", "a block has at least 1 element, not 0; write block-top-k:K"),
        ("bernoulli:0", r"probability must be in \(0, 1\], not 0"),
        ("dithering:0", "1 to 127 levels, not 0; write dithering:LEVELS"),
        ("dithering:200", "1 to 127 levels, not 200"),
        ("dithering:2.5", "LEVELS must be a whole number, not '2.5'"),
        ("ternary:0.5", "the norm must be 1 to inf, not 0.5"),
        ("ternary:nan", "NORM must be a number"),
        ("threshold:-1", "the threshold must be a number of at least 0"),
        ("threshold:inf", "the threshold must be a number of at least 0"),
        ("low-rank:11", "the rank must be 1 to 10, not 11; write low-rank:RANK"),
        ("low-rank:1:101", "a matrix of 100 elements cannot have 101 rows"),
        ("natural|sign", "'natural' is no part of a mixture; write PROBABILITY"),
        ("0.5*natural|0.4*sign", "probabilities must sum to 1"),
        ("-1*natural|2*sign", "probabilities must sum to 1"),
    ],
)
def test_errors_say_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(CompressError, match=message):
        parse(text, 100)


def test_dimension_and_dtype_are_checked() -> None:
    with pytest.raises(CompressError, match="dimension must be at least 1"):
        Identity(0)
    with pytest.raises(CompressError, match="float32 or float64"):
        Identity(3, np.float16)


def test_parts_must_fit() -> None:
    with pytest.raises(CompressError, match="must take 10 elements of float32"):
        Composition(Natural(9), RandK(10, 2))
    with pytest.raises(CompressError, match="must take 2 elements of float32"):
        KeptComposition(Natural(2, np.float64), RandK(10, 2))
    with pytest.raises(CompressError, match="must have a limit"):
        KeptComposition(Natural(2), Bernoulli(10, 0.5, 1))
    with pytest.raises(CompressError, match="one dimension and dtype"):
        Mixture([Natural(2), Natural(3)], [0.5, 0.5])
    with pytest.raises(CompressError, match="a probability for each"):
        Mixture([Natural(2)], [0.5, 0.5])


def test_a_biased_operator_makes_the_whole_biased() -> None:
    for text in ("natural+top-k:5", "ternary+sign", "0.5*natural|0.5*sign"):
        assert parse(text, 50).is_biased
    assert Contractive(RandK(10, 2)).is_biased
    assert parse("natural+top-k:5", 50).contraction == pytest.approx(0.1 * 7 / 8)
    assert parse("sign+top-k:5", 50).contraction == pytest.approx(0.1 / 5)
    assert isinstance(parse("block-top-k-ratio:1:5", 50), BlockTopKRatio)
    assert parse("ternary+sign", 50).contraction == 0
    assert isinstance(parse("top-k:5", 50), TopK)
