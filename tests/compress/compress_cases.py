"""The operators and vectors that the tests of compression go through, and how they measure them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress import Compressor, Stream

Vector = NDArray[Any]

UNBIASED = [
    "identity",
    "rand-k:0.25",
    "rand-k:40",
    "bernoulli:0.3",
    "bernoulli:0.3:1",
    "ternary",
    "ternary:inf",
    "ternary:2:10",
    "dithering:1:1",
    "dithering:3",
    "dithering:8",
    "dithering:3:inf",
    "dithering:2:3",
    "qsgd:4:16",
    "natural",
    "natural-dithering:4",
    "natural-dithering:9:inf",
    "block-random-k:3:7",
    "natural+rand-k:0.25",
    "dithering:2+natural",
    "0.25*identity|0.75*ternary:inf",
]
BIASED = [
    "top-k:5",
    "top-k:0.5",
    "threshold:1",
    "sign",
    "sign:10",
    "block-top-k:2:7",
    "block-top-k-ratio:2:7",
    "block-threshold:2:7",
    "low-rank:2",
    "natural+top-k:0.3",
    "sign+top-k:9",
    "sign+natural",
    "0.5*sign|0.5*natural",
]


class Losses(NamedTuple):
    """What T draws of C(x) say, all relative to x."""

    bias: float
    """||mean of C(x) - x|| / ||x||."""
    variance: float
    """Mean of ||C(x) - x||^2 / ||x||^2."""
    uncertainty: float
    """The standard error of that mean."""


def linf_worst(d: int, levels: int = 1) -> Vector:
    """What loses most in dithering by the largest magnitude."""
    x = np.full(d, 1 / (levels + math.sqrt(levels**2 + d - 1)))
    x[0] = 1.0
    return x


def named_vectors(d: int) -> dict[str, Vector]:
    """Vectors of d float64 elements that bring out the worst of operators; none is zero."""
    generator = np.random.default_rng(7)
    return {
        "gaussian": generator.standard_normal(d),
        "ones": np.ones(d),
        "heavy-tailed": generator.standard_cauchy(d) ** 3,
        "e1": np.eye(1, d)[0],
        "ternary worst": linf_worst(d) * np.where(np.arange(d) % 2, -1, 1),
    }


def measure(compressor: Compressor, x: Vector, draws: int, seed: int = 0) -> Losses:
    """Draw C(x) so often."""
    stream = Stream(seed, 0, "measure")
    total, errors = np.zeros(x.size), np.empty(draws)
    for t in range(draws):
        drawn = compressor.compress(x, stream)
        total += drawn
        errors[t] = np.sum((drawn - x) ** 2)
    size = float(x @ x)
    bias = float(np.linalg.norm(total / draws - x)) / math.sqrt(size)
    return Losses(bias, errors.mean() / size, errors.std() / math.sqrt(draws) / size)


def bits_of(x: Any) -> bytes:
    """The bytes of an array, to compare it bit for bit."""
    return bytes(np.ascontiguousarray(x).tobytes())


def entropy_bits(symbols: Vector) -> float:
    """Bits of these symbols under their own frequencies."""
    counts = np.unique(symbols, return_counts=True)[1]
    return float(np.sum(counts * np.log2(symbols.size / counts)))


def subset_bits(count: int, universe: int) -> float:
    """log2 binomial(universe, count)."""
    nats = math.lgamma(universe + 1) - math.lgamma(count + 1) - math.lgamma(universe - count + 1)
    return nats / math.log(2)
