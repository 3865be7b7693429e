"""Unbiased operators keep the mean, and lose what their omega says: no more, and where it is tight
no less."""

from __future__ import annotations

import math

import numpy as np
import pytest
from acceptance import CONSTRUCTED, Check
from compress_cases import (
    DRAWS,
    ROUNDING,
    UNBIASED,
    check_losses,
    linf_worst,
    measure,
    named_vectors,
)

from sparsewire.compress import (
    Bernoulli,
    BlockRandomK,
    Composition,
    Dithering,
    Draws,
    Mixture,
    Natural,
    NaturalDithering,
    RandK,
    Ternary,
    parse,
)

DIMENSION = 64


@pytest.mark.parametrize("vector", named_vectors(DIMENSION))
@pytest.mark.parametrize("name", [*UNBIASED, "ternary:1", "ternary:1.5:16", "ternary:3"])
def test_mean_is_kept_and_variance_is_bounded(name: str, vector: str) -> None:
    compressor = parse(name, DIMENSION, np.float64)
    losses = measure(compressor, named_vectors(DIMENSION)[vector], DRAWS)
    check_losses(CONSTRUCTED, compressor, losses)


MANY = 20_000
SMALL = 32


@pytest.mark.parametrize("vector", named_vectors(SMALL))
@pytest.mark.parametrize(
    "name",
    ["ternary:2:32", "ternary:inf:32", "dithering:5:2:32", "natural", "natural-dithering:6:2:32"],
)
def test_mean_over_many_draws(name: str, vector: str) -> None:
    """Blocks of one long vector are as many draws of a short one."""
    x = named_vectors(SMALL)[vector]
    compressor = parse(name, MANY * SMALL, np.float64)
    drawn = compressor.compress(np.tile(x, MANY), Draws(1)).reshape(MANY, SMALL)
    size = np.linalg.norm(x)
    variance = ((drawn - x) ** 2).sum() / MANY / size**2
    bias = np.linalg.norm(drawn.mean(axis=0) - x) / size
    Check(1, CONSTRUCTED).at_most(
        "bias / standard error of 20,000 draws", bias / (math.sqrt(variance / MANY) + ROUNDING), 2
    )
    assert variance <= 1.05 * compressor.omega + ROUNDING


ONES = np.ones(DIMENSION)
TWO_NORMS = np.where(np.arange(16) < 10, 0.5, 1.5)  # 4 levels: all are half-way between two.
WORST = {
    "rand-k": (RandK(DIMENSION, 5), ONES),
    "block-random-k": (BlockRandomK(DIMENSION, 3, 8), ONES),
    "bernoulli": (Bernoulli(DIMENSION, 0.5, 1), ONES),
    "ternary l2": (Ternary(DIMENSION), -ONES),
    "ternary linf": (Ternary(DIMENSION, math.inf), linf_worst(DIMENSION)),
    "ternary l1": (Ternary(DIMENSION, 1), ONES),
    "ternary l1.5": (Ternary(DIMENSION, 1.5), ONES),
    "ternary blocks": (Ternary(60, 2, 20), np.ones(60)),
    "coarse l2 dithering": (Dithering(DIMENSION, 3), ONES),
    "fine l2 dithering": (Dithering(16, 4), TWO_NORMS),
    "linf dithering": (Dithering(DIMENSION, 3, math.inf), linf_worst(DIMENSION, 3)),
    "natural": (Natural(DIMENSION), ONES * 4 / 3),
    # Each element is 1/12, 4/3 of a power of two, of the norm.
    "natural dithering": (NaturalDithering(144, 20), np.ones(144)),
    "composition": (Composition(Natural(9), RandK(9, 4)), np.full(9, 16 / 27)),
    "mixture": (Mixture([Ternary(DIMENSION), RandK(DIMENSION, 8)], [0.5, 0.5]), ONES),
}


@pytest.mark.parametrize("case", WORST)
def test_omega_is_reached_in_the_worst_case(case: str) -> None:
    compressor, x = WORST[case]
    ratio = measure(compressor, x, DRAWS).variance / compressor.omega
    Check(2, CONSTRUCTED).between("variance / omega in the worst case", ratio, 0.95, 1.05)


def test_omega_of_known_operators() -> None:
    def omega(name: str, dimension: int = 100) -> float:
        return parse(name, dimension).omega

    assert omega("identity") == 0
    assert omega("rand-k:5") == pytest.approx(19)
    assert omega("bernoulli:0.2") == pytest.approx(4)
    assert omega("ternary") == pytest.approx(9)
    assert omega("ternary:inf") == pytest.approx(4.5)
    assert omega("ternary:2:16", 1000) == pytest.approx(3)
    assert omega("ternary:2:512") == pytest.approx(9), "a block is no longer than the vector"
    assert omega("ternary:1") == pytest.approx(99)
    assert omega("ternary:3") == pytest.approx(9)
    assert omega("dithering:1:1.5") == pytest.approx(100 ** (2 / 3) - 1)
    assert omega("ternary:3:1") == 0, "a block of one element is sent as it is"
    assert omega("natural") == 0.125
    assert omega("natural+rand-k:5") == pytest.approx(9 / 8 * 20 - 1)
    assert omega("0.25*identity|0.75*ternary") == pytest.approx(0.75 * 9)


@pytest.mark.parametrize("name", ["rand-k:0.25", "natural", "ternary:inf"])
def test_contraction_of_the_unbiased_is_of_the_scaled_operator(name: str) -> None:
    compressor = parse(name, DIMENSION)
    assert not compressor.is_biased
    assert compressor.contraction == pytest.approx(1 / (compressor.omega + 1))
