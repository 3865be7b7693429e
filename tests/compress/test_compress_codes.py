"""The codes that messages are made of: symbols, positions and numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.compress import CompressError
from sparsewire.compress.entropy_code import (
    decode_symbols,
    decode_wide,
    encode_symbols,
    encode_wide,
)
from sparsewire.compress.marks import Marks
from sparsewire.compress.message import Reader, number_bytes


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
    symbols = np.random.default_rng(seed).integers(0, alphabet, count).astype(np.uint16)
    assert np.array_equal(decode_wide(encode_wide(symbols, alphabet), count, alphabet), symbols)


@given(data=st.data(), universe=st.integers(1, 3000))
def test_positions_round_trip(data: st.DataObject, universe: int) -> None:
    positions = sorted(data.draw(st.sets(st.integers(0, universe - 1), max_size=400)))
    payload = Marks.of(np.array(positions, np.int64), universe).encode()
    decoded = Marks.decode(payload, universe, len(positions))
    assert decoded.positions().tolist() == positions


@given(payload=st.binary(max_size=30), count=st.integers(0, 40), universe=st.integers(40, 2000))
def test_malformed_positions_are_refused(payload: bytes, count: int, universe: int) -> None:
    try:
        marks = Marks.decode(payload, universe, count)
    except CompressError:
        return
    positions = marks.positions()
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
