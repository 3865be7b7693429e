"""The codes that messages are made of: symbols, positions and numbers; and the kernels."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.compress import CompressError
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.kernels import (
    largest,
    powers_of_two,
    random_subset,
    round_to_exponents,
    round_to_powers,
    uniforms,
)
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.compress.positions import decode_positions, encode_positions
from sparsewire.compress.wide_code import decode_wide, encode_wide


@given(data=st.data(), alphabet=st.integers(1, 256))
def test_symbols_round_trip(data: st.DataObject, alphabet: int) -> None:
    some = st.lists(st.integers(0, alphabet - 1), max_size=300)
    # Long runs are what the shorter of the two codes is for.
    runs = st.lists(st.tuples(st.integers(0, alphabet - 1), st.integers(1, 400)), max_size=4)
    symbols = data.draw(some | runs.map(lambda r: [s for s, n in r for _ in range(n)]))
    array = np.array(symbols, np.uint8)
    decoded = decode_symbols(encode_symbols(array, alphabet), array.size, alphabet)
    assert decoded.dtype == np.uint8
    assert decoded.tolist() == symbols


@pytest.mark.parametrize("alphabet", [2, 3, 16, 256])
def test_skewed_symbols_round_trip(alphabet: int) -> None:
    generator = np.random.default_rng(alphabet)
    symbols = np.minimum(generator.geometric(0.7, 5000) - 1, alphabet - 1).astype(np.uint8)
    payload = encode_symbols(symbols, alphabet)
    assert len(payload) < 5000 * math.ceil(math.log2(alphabet)) / 8
    assert np.array_equal(decode_symbols(payload, 5000, alphabet), symbols)


def test_symbols_outside_the_alphabet_are_refused() -> None:
    with pytest.raises(CompressError, match="symbol 3 is not in an alphabet of 3"):
        encode_symbols(np.array([0, 3], np.uint8), 3)
    payload = encode_symbols(np.array([0, 3], np.uint8), 4)
    with pytest.raises(CompressError, match="alphabet"):
        decode_symbols(payload, 2, 3)
    with pytest.raises(CompressError, match="256"):
        encode_symbols(np.array([0], np.uint8), 257)


@given(payload=st.binary(max_size=60), count=st.integers(0, 50), alphabet=st.integers(1, 256))
def test_malformed_symbols_are_refused(payload: bytes, count: int, alphabet: int) -> None:
    try:
        symbols = decode_symbols(payload, count, alphabet)
    except CompressError:
        return
    assert symbols.size == count
    assert not count or symbols.max() < alphabet


@given(count=st.integers(0, 200), alphabet=st.integers(257, 65536), seed=st.integers(0, 9))
def test_wide_symbols_round_trip(count: int, alphabet: int, seed: int) -> None:
    symbols = np.random.default_rng(seed).integers(0, alphabet, count)
    assert np.array_equal(decode_wide(encode_wide(symbols, alphabet), count, alphabet), symbols)


@given(data=st.data(), universe=st.integers(1, 3000))
def test_positions_round_trip(data: st.DataObject, universe: int) -> None:
    positions = sorted(data.draw(st.sets(st.integers(0, universe - 1), max_size=400)))
    payload = encode_positions(np.array(positions, np.int64), universe)
    assert decode_positions(payload, len(positions), universe).tolist() == positions


@given(payload=st.binary(max_size=30), count=st.integers(0, 40), universe=st.integers(40, 2000))
def test_malformed_positions_are_refused(payload: bytes, count: int, universe: int) -> None:
    try:
        positions = decode_positions(payload, count, universe)
    except CompressError:
        return
    assert positions.size == count
    assert (np.diff(positions) > 0).all()
    assert not count or 0 <= positions[0] <= positions[-1] < universe


@given(st.integers(0, 2**63 - 1))
def test_numbers_round_trip(number: int) -> None:
    reader = Reader(number_bytes(number))
    assert reader.number() == number
    reader.end()


def test_a_number_without_an_end_is_refused() -> None:
    with pytest.raises(CompressError, match="malformed"):
        Reader(b"\xff" * 20).number()


@given(count=st.integers(0, 50), more=st.integers(0, 100), key=st.integers(0, 2**64 - 1))
def test_random_subset_is_one(count: int, more: int, key: int) -> None:
    subset = random_subset(key, count, count + more)
    assert subset.size == count
    assert (np.diff(subset) > 0).all()
    assert not count or 0 <= subset[0] <= subset[-1] < count + more


@pytest.mark.parametrize("count", [2, 4])
def test_all_subsets_are_equally_likely(count: int) -> None:
    draws = 3000
    seen = Counter(tuple(random_subset(key, count, 6).tolist()) for key in range(draws))
    assert len(seen) == math.comb(6, count)
    expected = draws / len(seen)
    chi_squared = sum((n - expected) ** 2 / expected for n in seen.values())
    assert chi_squared < 36.1, "14 degrees of freedom: exceeded once in a thousand times"


def test_uniforms_depend_on_key_and_position_only() -> None:
    whole = uniforms(9, 100)
    assert np.array_equal(whole[30:50], uniforms(9, 20, begin=30))
    assert not np.array_equal(whole, uniforms(10, 100))
    assert uniforms(9, 10**5).min() >= 0
    assert abs(uniforms(9, 10**5).mean() - 0.5) < 4 / math.sqrt(12 * 10**5)


def test_largest_takes_the_first_of_equal_ones() -> None:
    assert largest(np.array([1, 3, 2, 3, 3]), 2).tolist() == [1, 3]
    assert largest(np.array([0.0, 0.0]), 1).tolist() == [0]
    assert largest(np.array([5.0]), 1).tolist() == [0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_two_are_kept_by_natural_rounding(dtype: type) -> None:
    x = np.ldexp(np.array([1.0, -1, 1, -1]), [0, 5, -100, -126]).astype(dtype)
    exponents = round_to_exponents(x, 1)
    assert np.array_equal(powers_of_two(exponents, x < 0, np.dtype(dtype)), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_below_the_normal_ones_keep_their_mean(dtype: type) -> None:
    tiny = np.finfo(dtype).smallest_normal
    x = np.full(20_000, tiny / 4, dtype)
    up = round_to_exponents(x, 3)
    assert set(up.tolist()) == {0, 1}
    assert abs(up.mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / x.size)


def test_rounding_to_powers_keeps_them_and_goes_up_or_down() -> None:
    exact = np.array([0, 1 / 8, 1 / 4, 1 / 2, 1])
    assert round_to_powers(exact, 4, 1).tolist() == [0, 1, 2, 3, 4]
    between = round_to_powers(np.full(20_000, 0.3), 4, 2)
    assert set(between.tolist()) == {2, 3}
    assert abs((between == 3).mean() - 0.2) < 4 * math.sqrt(0.2 * 0.8 / 20_000)
