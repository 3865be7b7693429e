"""The native kernels against plain NumPy: the same bits where they promise them."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from compress_cases import BIASED, UNBIASED
from compress_noise import DTYPES, KEYS, SPAN, Array, noise, vectors
from hypothesis import given
from hypothesis import strategies as st

from sparsewire import _core
from sparsewire.compress import Draws, parse
from sparsewire.compress.marks import Blocks


def bits_of(x: Array) -> Array:
    """Magnitudes as int64."""
    word = np.uint32 if x.dtype == np.float32 else np.uint64
    return np.abs(x).view(word).astype(np.int64)


def dithered(x: Array, block: int, norms: Array, levels: int, key: int) -> Array:
    """What `dither` writes, in exact integers."""
    width = 8 * x.itemsize
    fraction = width - 2 - (levels - 1).bit_length()
    spread = np.repeat(norms, block)[: x.size]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.minimum(np.abs(x) / spread, x.dtype.type(1))
    scaled = np.where(spread > 0, ratios, 0) * x.dtype.type(levels * 2**fraction)
    below_one = noise(key, x.size, x.dtype).astype(object) >> (width - fraction)
    size = (scaled.astype(np.int64).astype(object) + below_one) >> fraction
    return np.array(np.where(np.signbit(x), -size, size) * (spread > 0) + levels, np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), levels=st.integers(1, 127), block=st.integers(1, 200), key=KEYS)
def test_dithering_is_that_of_exact_integers(
    data: st.DataObject, dtype: str, levels: int, block: int, key: int
) -> None:
    x = data.draw(vectors(dtype))
    norms = Blocks(x.size, block).norms(x, data.draw(st.sampled_from([1, 2, math.inf])))
    symbols, values = np.empty(x.size, np.uint8), np.empty_like(x)
    _core.dither(x, block, norms, levels, key, symbols)
    assert symbols.tolist() == dithered(x, block, norms, levels, key).tolist()
    _core.undither(symbols, block, norms, levels, values)
    level = symbols.astype(x.dtype) - x.dtype.type(levels)
    expected = level / x.dtype.type(levels) * np.repeat(norms, block)[: x.size]
    assert values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_goes_on_beyond_a_span(dtype: str) -> None:
    x = np.full(SPAN + 100, 0.5, dtype)
    symbols = np.empty(x.size, np.uint8)
    _core.dither(x, x.size, np.ones(1, dtype), 1, 77, symbols)
    assert np.array_equal(symbols, dithered(x, x.size, np.ones(1, dtype), 1, 77))
    assert abs((symbols - 1.0).mean() - 0.5) < 4 * 0.5 / math.sqrt(x.size)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), key=KEYS)
def test_natural_rounding_is_the_carry_of_mantissa_and_noise(
    data: st.DataObject, dtype: str, key: int
) -> None:
    x = data.draw(vectors(dtype))
    mantissa, width = (23, 32) if dtype == "f4" else (52, 64)
    random = noise(key, x.size, dtype).astype(object) >> (width - mantissa)
    exponents = ((bits_of(x).astype(object) + random) >> mantissa).astype(np.int64)
    expected = np.where(exponents > 0, 2 * exponents + np.signbit(x), 0)
    codes, values = np.empty(x.size, np.uint16), np.empty_like(x)
    _core.natural_compress(x, key, codes)
    assert codes.tolist() == expected.tolist()
    _core.natural_decompress(codes, 0, values)
    bias = 127 if dtype == "f4" else 1023
    powers = np.ldexp(np.where(np.signbit(x), -1.0, 1.0), exponents - bias)
    assert np.array_equal(values, np.where(exponents > 0, powers, 0).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_the_norm_stay_and_others_go_up_or_down(dtype: str) -> None:
    norms, levels = np.full(1, 4, dtype), 4
    exact = np.array([0, 0.5, -1, 2, -4], dtype)
    symbols, values = np.empty(5, np.uint8), np.empty(5, dtype)
    _core.natural_dither(exact, 5, norms, levels, 3, symbols)
    assert symbols.tolist() == [4, 5, 2, 7, 0]
    _core.natural_undither(symbols, 5, norms, levels, values)
    assert values.tolist() == exact.tolist()
    for value, low, high, chance in [(1.2, 6, 7, 0.2), (0.125, 4, 5, 0.25)]:
        symbols = np.empty(20_000, np.uint8)
        _core.natural_dither(np.full(20_000, value, dtype), 20_000, norms, levels, 2, symbols)
        assert set(symbols.tolist()) == {low, high}
        up = (symbols == high).mean()
        assert abs(up - chance) < 4 * math.sqrt(chance * (1 - chance) / 20_000)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), block=st.integers(1, 60))
def test_norms_and_means(data: st.DataObject, dtype: str, block: int) -> None:
    x = data.draw(vectors(dtype))
    blocks = Blocks(x.size, block)
    parts = np.split(np.abs(x, dtype=np.float64), range(block, x.size, block))
    for power in (1, 1.7, 2, 3, 8, math.inf):
        norms = blocks.norms(x, power)
        expected = [np.linalg.norm(part, power) for part in parts]
        assert norms == pytest.approx(expected, rel=1e-6)
        assert (norms * (1 + 1e-6) >= [part.max() for part in parts]).all()
    means = blocks.means(x)
    assert means == pytest.approx([part.mean() for part in parts], rel=1e-6)
    assert all(mean <= part.max() for mean, part in zip(means, parts, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_signs_and_what_is_not_finite(data: st.DataObject, dtype: str) -> None:
    x = data.draw(vectors(dtype))
    symbols = np.empty(x.size, np.uint8)
    _core.take_signs(x, symbols)
    assert symbols.tolist() == (np.sign(x) + 1).tolist()
    assert _core.first_not_finite(x) == x.size
    at = data.draw(st.integers(0, x.size - 1))
    x[at:] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    assert _core.first_not_finite(x) == at


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, symbols = np.ones(10, np.float32), np.empty(10, np.uint8)
    norms, words = np.ones(4, np.float32), np.zeros(1, np.uint64)
    calls = [
        lambda: _core.dither(x, 3, norms[:3].copy(), 1, 0, symbols),
        lambda: _core.dither(x, 3, norms.astype(np.float64), 1, 0, symbols),
        lambda: _core.dither(x, 3, norms, 1, 0, symbols[:9]),
        lambda: _core.dither(x, 0, norms, 1, 0, symbols),
        lambda: _core.dither(x, 3, norms, 128, 0, symbols),
        lambda: _core.undither(symbols[:9], 3, norms, 1, x),
        lambda: _core.natural_compress(x, 0, symbols),
        lambda: _core.block_norms(x, 3, 0.5, norms),
        lambda: _core.first_not_finite(np.ones(3, np.float16)),
        lambda: _core.mark_top_k(x, 11, words),
        lambda: _core.mark_rand_k(65, 3, 0, words),
        lambda: _core.gather_blocks(x, 1, words, np.empty(1, np.float32)),
        lambda: _core.scatter_blocks(np.empty(1, np.float32), 1, words, x),
        lambda: _core.nearest_multiples(x, 3, 7, norms[:3].copy(), symbols),
        lambda: _core.nearest_multiples(x, 3, 6, norms, symbols),
        lambda: _core.take_centroids(x, 3, np.empty(7, np.float32), symbols),
        lambda: _core.take_centroids(x, 3, np.empty(8, np.float64), symbols),
        lambda: _core.nearest_powers(x, 3, 65, norms, symbols),
        lambda: _core.nearest_powers(x, 3, 7, norms[:3].copy(), symbols),
        lambda: _core.mark_visible(x, norms, 1.0, words),
        lambda: _core.mark_visible(x, x, 1.0, words[:0]),
        lambda: _core.transform_chunks(x, 2, np.ones(4), np.ones(3), x.copy()),
        lambda: _core.transform_chunks(x, 0, np.ones(4), np.ones(4), x.copy()),
        lambda: _core.transform_chunks(symbols, 2, np.ones(4), np.ones(4), x.copy()),
        lambda: _core.centroid_values(np.full(10, 5, np.uint8), 10, norms, x),
        lambda: _core.entropy_encode(symbols, 257),
        lambda: _core.encode_positions(words, 10, 3),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"must|needs|there|bitmap"):
            call()


def test_memory_that_cannot_be_used_is_refused() -> None:
    x, symbols = np.ones((10, 2), np.float32)[:, 0], np.empty(10, np.uint8)
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        _core.take_signs(x, symbols)
    symbols.flags.writeable = False
    with pytest.raises((BufferError, ValueError), match=r"read-only|writ"):
        _core.take_signs(x.copy(), symbols)


def test_messages_have_the_same_bits_on_every_machine() -> None:
    """Of all operators but those that call a library of linear algebra."""
    x = np.ldexp(np.arange(-500, 500) % 97 - 48.0, np.arange(1000) % 11 - 8)
    digests = {}
    for dtype in DTYPES:
        digest, draws = hashlib.sha256(), Draws(3)
        for name in UNBIASED + BIASED:
            if not name.startswith("low-rank"):
                digest.update(parse(name, x.size, dtype).encode(x, draws))
        digests[dtype] = digest.hexdigest()[:16]
    assert digests == {"f4": "7742764aa96d2dbb", "f8": "70eec3a83d63e7ad"}
