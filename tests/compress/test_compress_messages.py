"""Messages: decode(encode) is what compress gives, bit for bit, and malformed bytes are refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from compress_cases import BIASED, UNBIASED, bits_of, named_vectors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import sparsewire
from sparsewire.compress import CompressError, Compressor, Contractive, Draws, RandK, parse

DIMENSION = 64
OPERATORS = UNBIASED + BIASED
# Of these, no message at all stands for a vector of zeros.
MAY_BE_EMPTY = {
    *("bernoulli:0.3", "bernoulli:0.3:1", "span-top-k:3:8", "threshold:1", "block-threshold:2:7"),
    "dct-top-k:3:4",
    "visible:0.01",
}


def assert_same_both_ways(compressor: Compressor, x: np.ndarray, seed: int = 5) -> None:
    payload = compressor.encode(x, Draws(seed))
    decoded = compressor.decode(payload)
    assert decoded.dtype == compressor.dtype
    assert decoded.shape == (compressor.dimension,)
    compressed = compressor.compress(x.astype(compressor.dtype), Draws(seed))
    assert bits_of(compressed) == bits_of(decoded)
    assert np.isfinite(decoded).all()
    assert_adds(compressor, payload)


def assert_adds(compressor: Compressor, payload: bytes) -> None:
    """Check that messages are added as they are decoded, to vectors of both dtypes."""
    start = np.random.default_rng(4).standard_normal(compressor.dimension)
    with np.errstate(over="ignore", under="ignore"):
        for dtype, factor in itertools.product((np.float32, np.float64), (1.0, -1.0, 0.3)):
            total = start.astype(dtype)
            expected = total + compressor.decode(payload).astype(dtype) * dtype(factor)
            compressor.add(compressor.read(payload), total, factor)
            assert bits_of(total) == bits_of(expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_round_trip_of_named_vectors(name: str, dtype: type) -> None:
    compressor = parse(name, DIMENSION, dtype)
    for x in named_vectors(DIMENSION).values():
        assert_same_both_ways(compressor, x)
        assert_same_both_ways(Contractive(compressor), x)


@given(data=st.data(), name=st.sampled_from(OPERATORS), dtype=st.sampled_from(["f4", "f8"]))
def test_round_trip_of_any_vector(data: st.DataObject, name: str, dtype: str) -> None:
    dimension = data.draw(st.integers(40, 90))
    # Between these limits nothing overflows, and sums and ratios of norms stay normal.
    sizes = st.floats(2.0**-60, 2.0**60, width=32)
    elements = st.one_of(st.just(0.0), sizes, sizes.map(lambda v: -v))
    x = data.draw(npst.arrays(dtype, dimension, elements=elements))
    assert_same_both_ways(parse(name, dimension, dtype), x, data.draw(st.integers(0, 99)))


@given(x=npst.arrays("f4", 40, elements=st.floats(width=32)), name=st.sampled_from(OPERATORS))
def test_extreme_vectors_pass_or_are_refused(x: np.ndarray, name: str) -> None:
    compressor = parse(name, 40)
    try:
        compressor.encode(x, Draws(5))
    except CompressError:
        return
    assert_same_both_ways(compressor, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_zero_stays_zero(name: str, dtype: type) -> None:
    compressor = parse(name, DIMENSION, dtype)
    zero = np.zeros(DIMENSION, dtype)
    assert bits_of(compressor.compress(zero, Draws(2))) == bits_of(zero)
    assert bits_of(compressor.decode(compressor.encode(zero, Draws(2)))) == bits_of(zero)


@pytest.mark.parametrize("name", OPERATORS)
def test_messages_cut_short_or_made_longer_are_refused(name: str) -> None:
    compressor = parse(name, DIMENSION)
    draws = Draws(3)
    payload = b""
    while not payload:
        payload = compressor.encode(named_vectors(DIMENSION)["gaussian"] * 3, draws)
    for length in range(name in MAY_BE_EMPTY, len(payload)):
        with pytest.raises(CompressError):
            compressor.decode(payload[:length])
    with pytest.raises(CompressError):
        compressor.decode(payload + b"\0")


@pytest.mark.parametrize("name", OPERATORS)
def test_damaged_messages_are_refused_or_make_some_vector(name: str) -> None:
    compressor = parse(name, DIMENSION)
    generator = np.random.default_rng(8)
    payload = compressor.encode(named_vectors(DIMENSION)["gaussian"], Draws(3))
    for _ in range(150):
        damaged = bytearray(payload or b"\0" * 9)
        for at in generator.integers(0, len(damaged), 1 + generator.integers(3)):
            damaged[at] = generator.integers(256)
        assert_decodes_or_refuses(compressor, bytes(damaged))
        assert_decodes_or_refuses(compressor, generator.bytes(generator.integers(40)))


def assert_decodes_or_refuses(compressor: Compressor, payload: bytes) -> None:
    total = np.ones(compressor.dimension)
    try:
        decoded = compressor.decode(payload)
    except CompressError:
        with pytest.raises(CompressError):
            compressor.add(compressor.read(payload), total)
        assert (total == 1).all()
        return
    assert decoded.shape == (compressor.dimension,)
    assert_adds(compressor, payload)


def test_values_that_are_not_finite_are_refused() -> None:
    payload = np.array([1, np.nan], "<f4").tobytes()
    with pytest.raises(CompressError, match="it holds values that are not finite"):
        parse("identity", 2).decode(payload)


def test_a_message_for_a_vector_that_overflows_is_refused() -> None:
    payload = bytes(8) + np.array([3e38], "<f4").tobytes()
    with pytest.raises(CompressError, match="it stands for a vector that is not finite"):
        RandK(4, 1).decode(payload)


@pytest.mark.parametrize("name", ["qsgd:7:512", "dithering:3", "sign:100", "natural-dithering:4"])
def test_vectors_longer_than_a_tile_are_added_as_they_are_decoded(name: str) -> None:
    compressor = parse(name, 70_001)
    x = np.random.default_rng(2).standard_normal(compressor.dimension)
    assert_adds(compressor, compressor.encode(x, Draws(1)))


def test_small_negative_numbers_that_vanish_leave_no_sign() -> None:
    x = np.full(DIMENSION, -1e-44, np.float32)
    compressor = parse("natural", DIMENSION)
    assert not np.signbit(compressor.compress(x, Draws(0))).any()
    assert_same_both_ways(compressor, x)


def test_negative_norms_are_refused() -> None:
    for name, sign_at in (("ternary", 3), ("sign", 4), ("centroids", 8)):
        compressor = parse(name, 4)
        payload = bytearray(compressor.encode(np.ones(4), Draws(0)))
        payload[sign_at] |= 128
        with pytest.raises(CompressError, match="negative"):
            compressor.decode(bytes(payload))


def test_the_error_is_one_of_sparsewire() -> None:
    assert issubclass(CompressError, sparsewire.Error)
    assert issubclass(CompressError, ValueError)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_not_finite_is_refused_by_its_index(name: str) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = np.ones(DIMENSION)
        x[17] = bad
        with pytest.raises(CompressError, match="element 17 "):
            parse(name, DIMENSION).encode(x, Draws(0))


def test_what_overflows_is_refused() -> None:
    top = np.full(4, np.finfo(np.float32).max)
    with pytest.raises(CompressError, match="element 0 is not finite as float32"):
        parse("identity", 4).encode(top.astype(np.float64) * 2, Draws(0))
    for name in ("natural", "ternary", "rand-k:1", "dithering:2:3", "low-rank:1"):
        with pytest.raises(CompressError, match="too large"):
            parse(name, 4).encode(top, Draws(0))
    for name in ("ternary:inf", "sign", "top-k:1"):
        assert np.isfinite(parse(name, 4).compress(top, Draws(0))).all()


def test_what_overflows_only_when_it_is_scaled_is_refused() -> None:
    # Rounded down, twice the kept element is the largest power of two; rounded up, too much.
    compressor, x = parse("natural+rand-k:1", 2), np.full(2, 1.5 * 2.0**126, np.float32)
    decoded, refused = set(), 0
    for seed in range(20):
        try:
            payload = compressor.encode(x, Draws(seed))
        except CompressError:
            refused += 1
        else:
            decoded.add(float(compressor.decode(payload).max()))
    assert decoded == {2.0**127}
    assert refused


def test_other_sizes_and_types_are_refused() -> None:
    compressor = RandK(6, 2)
    with pytest.raises(CompressError, match="takes 6 elements, not 5"):
        compressor.encode(np.ones(5), Draws(0))
    with pytest.raises(CompressError, match="not int64"):
        compressor.encode(np.arange(6), Draws(0))


LITTLE, BIG = (np.dtype(np.float32).newbyteorder(order) for order in "<>")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, LITTLE, BIG])
def test_shape_and_dtype_are_kept(dtype: Any) -> None:
    x = np.random.default_rng(1).standard_normal((9, 8)).astype(dtype).T
    before = x.copy()
    for name in OPERATORS:
        compressed = parse(name, 72).compress(x, Draws(0))
        assert (compressed.shape, compressed.dtype) == (x.shape, x.dtype)
    assert np.array_equal(x, before), "the input is left alone"


def test_a_result_is_memory_of_its_own() -> None:
    x = np.ones(5, np.float32)
    parse("identity", 5).compress(x, Draws(0))[0] = 2
    assert x[0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_codes_of_sums_and_differences_are_those_of_what_is_made(name: str, dtype: type) -> None:
    compressor = parse(name, DIMENSION, dtype)
    x, y = np.random.default_rng(8).standard_normal((2, DIMENSION)).astype(dtype)
    for made, code in ((x + y, compressor.code_of_sum), (x - y, compressor.code_of_difference)):
        expected = compressor.encode(made, Draws(6))
        assert compressor.pack(code(x.copy(), y, Draws(6))) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("name", OPERATORS)
def test_differences_that_cannot_be_coded_are_made(name: str, value: float) -> None:
    compressor = parse(name, DIMENSION)
    x, y = np.random.default_rng(8).standard_normal((2, DIMENSION)).astype(np.float32)
    x[7], y[7] = value, -3e38
    with np.errstate(over="ignore"):
        made = x - y
    with pytest.raises(CompressError):
        compressor.code_of_difference(x, y, Draws(6))
    assert bits_of(x) == bits_of(made)
