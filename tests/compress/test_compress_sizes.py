"""Messages are as short as information theory allows, up to 5% and a header."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance import CONSTRUCTED
from compress_cases import check_size, entropy_bits, linf_worst, named_vectors, subset_bits

from sparsewire.compress import (
    Bernoulli,
    BlockTopK,
    Dithering,
    Draws,
    KeptComposition,
    Natural,
    NaturalDithering,
    RandK,
    Sign,
    Ternary,
    Threshold,
    TopK,
)
from sparsewire.compress.entropy_code import encode_symbols
from sparsewire.compress.marks import Marks

DIMENSION = 8192
GAUSSIAN = named_vectors(DIMENSION)["gaussian"]


def assert_short(payload: bytes, entropy: float, symbols: int = 0) -> None:
    check_size(CONSTRUCTED, payload, entropy, symbols)


@pytest.mark.parametrize(
    "compressor",
    [
        Ternary(DIMENSION),
        Ternary(DIMENSION, 2, 512),
        Ternary(DIMENSION, np.inf, 512),
        Dithering(DIMENSION, 4, 2, 128),
        Dithering(DIMENSION, 127, 2, 128),
        NaturalDithering(DIMENSION, 8, 2, 128),
    ],
    ids=lambda c: f"{type(c).__name__}-{c.levels}-{c.blocks.size}",
)
@pytest.mark.parametrize("vector", ["gaussian", "ones", "heavy-tailed", "ternary worst"])
def test_levels(compressor: Dithering, vector: str) -> None:
    x = named_vectors(DIMENSION)[vector]
    code = compressor.draw(x.astype(np.float32), Draws(0))
    entropy = entropy_bits(code.symbols) + 32 * code.scales.size
    assert_short(compressor.encode(x, Draws(0)), entropy, int(code.symbols.max()) + 1)


def test_sparse_ternary_message_is_far_below_a_bit_per_element() -> None:
    payload = Ternary(DIMENSION).encode(GAUSSIAN, Draws(0))
    assert len(payload) * 8 < 0.2 * DIMENSION


def symbols_up_to_largest(symbols: np.ndarray) -> int:
    """Zero, and both signs of each exponent from the least on; twice the exponent is a symbol."""
    used = symbols[symbols > 0] // 2
    return 1 + 2 * int(used.max() - used.min() + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("vector", ["gaussian", "ones", "heavy-tailed", "e1"])
def test_natural(vector: str, dtype: type) -> None:
    x, compressor = named_vectors(DIMENSION)[vector].astype(dtype), Natural(DIMENSION, dtype)
    code = compressor.draw(x, Draws(0))
    payload = compressor.encode(x, Draws(0))
    assert_short(payload, entropy_bits(code.symbols), symbols_up_to_largest(code.symbols))
    assert len(payload) < DIMENSION * 9 / 8, "the 9 bits of sign and exponent"


@pytest.mark.parametrize("k", [1, 7, 82, 1000, 3000, 7000, DIMENSION])
def test_top_k(k: int) -> None:
    entropy = 32 * k + subset_bits(k, DIMENSION)
    assert_short(TopK(DIMENSION, k).encode(GAUSSIAN, Draws(0)), entropy)


def test_blocks_and_thresholds() -> None:
    payload = BlockTopK(DIMENSION, 40, 16).encode(GAUSSIAN, Draws(0))
    assert_short(payload, 32 * 40 * 16 + subset_bits(40, DIMENSION // 16))
    count = int(np.sum(np.abs(GAUSSIAN) >= 2))
    payload = Threshold(DIMENSION, 2).encode(GAUSSIAN, Draws(0))
    assert_short(payload, 32 * count + subset_bits(count, DIMENSION))


def test_random_masks_cost_a_seed() -> None:
    assert len(RandK(DIMENSION, 100).encode(GAUSSIAN, Draws(0))) == 8 + 4 * 100
    whole = Bernoulli(DIMENSION, 0.5)
    lengths = {len(whole.encode(GAUSSIAN, Draws(seed))) for seed in range(20)}
    assert lengths == {0, 4 * DIMENSION}


def test_signs_cost_a_bit_each() -> None:
    assert_short(Sign(DIMENSION).encode(GAUSSIAN, Draws(0)), DIMENSION)
    assert len(Sign(112).encode(GAUSSIAN[:112], Draws(0))) == 2 + 4 + 112 / 8
    assert len(Sign(DIMENSION).encode(linf_worst(DIMENSION), Draws(0))) < 30, "all are positive"


def test_composition_names_positions_once_and_codes_values() -> None:
    compressor = KeptComposition(Natural(400), TopK(DIMENSION, 400))
    code = compressor.draw(GAUSSIAN.astype(np.float32), Draws(0))
    entropy = entropy_bits(code.values.symbols) + subset_bits(400, DIMENSION)
    table = symbols_up_to_largest(code.values.symbols)
    assert_short(compressor.encode(GAUSSIAN, Draws(0)), entropy, table)


@pytest.mark.parametrize("density", [1e-4, 1e-3, 0.01, 0.03, 0.1, 0.124, 0.2, 0.38, 0.5, 0.9])
def test_positions(density: float) -> None:
    universe = 200_000
    count = round(density * universe)
    generator = np.random.default_rng(5)
    marks = Marks.of(generator.choice(universe, count, replace=False), universe)
    assert_short(marks.encode(), subset_bits(count, universe))


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.001])
def test_entropy_code_of_rare_symbols(share: float) -> None:
    symbols = (np.random.default_rng(6).random(100_000) < share).astype(np.uint8)
    assert_short(encode_symbols(symbols, 2), entropy_bits(symbols), 2)
