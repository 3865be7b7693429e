"""The operators and vectors that the tests of compression go through, and how they measure them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from acceptance import FULL, Check
from numpy.typing import NDArray

from sparsewire.compress import Compressor, Draws

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
    "span-top-k:3:8",
    "rounded:4:8",
    "rounded:3:2+span-top-k:2:7",
    "threshold:1",
    "sign",
    "sign:10",
    "centroids",
    "centroids:7",
    "centroids:3+span-top-k:3:8",
    "fp4",
    "fp4:9",
    "dct-top-k:3:4",
    "centroids:4+dct-top-k:4:5",
    "visible:0.01",
    "block-top-k:2:7",
    "block-top-k-ratio:2:7",
    "block-threshold:2:7",
    "low-rank:2",
    "natural+top-k:0.3",
    "sign+top-k:9",
    "sign+natural",
    "0.5*sign|0.5*natural",
]


DRAWS = 20_000 if FULL else 800
# Values are sent as float64, so that only the last bits are lost where nothing is random.
ROUNDING = 1e-12


class Losses(NamedTuple):
    """What T draws of C(x) say, all relative to x."""

    bias: float
    """||mean of C(x) - x|| / ||x||."""
    variance: float
    """Mean of ||C(x) - x||^2 / ||x||^2."""
    uncertainty: float
    """The standard error of that mean."""
    draws: int
    """T."""


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
    random = Draws(seed, 0, "measure")
    total, errors = np.zeros(x.size), np.empty(draws)
    for t in range(draws):
        drawn = compressor.compress(x, random)
        total += drawn
        errors[t] = np.sum((drawn - x) ** 2)
    size = float(x @ x)
    bias = float(np.linalg.norm(total / draws - x)) / math.sqrt(size)
    return Losses(bias, errors.mean() / size, errors.std() / math.sqrt(draws) / size, draws)


def check_losses(data: str, compressor: Compressor, losses: Losses) -> None:
    """That the mean is kept, and that no more is lost than omega says."""
    error = math.sqrt(losses.variance / losses.draws) + ROUNDING
    # Where one element carries all, the bias is as wide as a normal variable: among so many cases
    # some may be beyond two standard errors.
    Check(1, data).at_most("bias / standard error", losses.bias / error, 2 if FULL else 3)
    omega = compressor.omega + ROUNDING
    # Few draws leave the variance uncertain itself.
    slack = 0 if FULL else 3 * losses.uncertainty / omega
    Check(2, data).at_most("variance / omega", losses.variance / omega, 1.05 + slack)


HEADER_BITS = 8 * 24
TABLE_BITS = 8 * 2
"""Of each symbol up to the largest: how often it occurs."""


def check_size(data: str, payload: bytes, entropy: float, symbols: int = 0) -> None:
    """That a message is as short as its entropy, up to 5%, a header and a table of symbols."""
    bits = len(payload) * 8
    allowed = 1.05 * entropy + HEADER_BITS + TABLE_BITS * symbols
    Check(3, data).at_most("bits / (1.05 entropy + header)", bits / allowed, 1)
    # A bound that is far from what is sent would let anything pass.
    assert bits >= 0.95 * entropy


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
