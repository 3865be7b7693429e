"""Which elements are sent: drawn, tossed for or chosen, and moved; against plain NumPy."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from compress_noise import DTYPES, KEYS, noise, vectors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sparsewire import _core
from sparsewire.compress.marks import Blocks, Marks


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_the_largest_and_the_large_enough(data: st.DataObject, dtype: str) -> None:
    x = data.draw(vectors(dtype) | vectors(dtype).map(np.sign))
    k = data.draw(st.integers(0, x.size))
    first = np.argsort(-np.abs(x), kind="stable")[:k]
    assert Marks.largest(x, k).positions().tolist() == sorted(first.tolist())
    bound = float(np.abs(data.draw(st.sampled_from(list(x)))))
    reaching = Marks.reaching(x, bound)
    assert reaching.positions().tolist() == np.flatnonzero(np.abs(x) >= bound).tolist()
    assert reaching.count == reaching.positions().size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 100, 9_000, 19_999])
def test_the_largest_of_many(dtype: str, k: int) -> None:
    x = np.round(np.random.default_rng(k).standard_normal(20_000) * 50).astype(dtype)
    first = np.sort(np.argsort(-np.abs(x), kind="stable")[:k])
    assert np.array_equal(Marks.largest(x, k).positions(), first)


@given(count=st.integers(1, 300), numerator=st.integers(0, 2**32), key=KEYS)
def test_coins_fall_where_noise_is_low(count: int, numerator: int, key: int) -> None:
    marks = Marks.coins(count, numerator / 2**32, key)
    expected = np.flatnonzero(noise(key, count, "f4").astype(np.int64) < numerator)
    assert marks.positions().tolist() == expected.tolist()
    assert marks.count == expected.size


@given(count=st.integers(0, 50), more=st.integers(0, 100), key=KEYS)
def test_a_random_subset_is_one(count: int, more: int, key: int) -> None:
    subset = Marks.subset(count + more, count, key).positions()
    assert subset.size == count
    assert (np.diff(subset) > 0).all()
    assert not count or 0 <= subset[0] <= subset[-1] < count + more


@pytest.mark.parametrize("count", [2, 4])
def test_all_subsets_are_equally_likely(count: int) -> None:
    draws = 3000
    seen = Counter(tuple(Marks.subset(6, count, key).positions().tolist()) for key in range(draws))
    assert len(seen) == math.comb(6, count)
    expected = draws / len(seen)
    chi_squared = sum((n - expected) ** 2 / expected for n in seen.values())
    assert chi_squared < 36.1, "14 degrees of freedom: exceeded once in a thousand times"


@pytest.mark.parametrize("count", [1_000, 20_000, 25_000, 39_000])
def test_large_subsets_are_spread_evenly(count: int) -> None:
    """Few are drawn one by one, and many tossed for: both take each position equally often."""
    draws, universe = 300, 40_000
    times = np.zeros(universe)
    for key in range(draws):
        positions = Marks.subset(universe, count, key).positions()
        assert positions.size == count
        times[positions] += 1
    share = count / universe
    chi_squared = np.sum((times - draws * share) ** 2) / (draws * share * (1 - share))
    assert abs(chi_squared - universe) < 5 * math.sqrt(2 * universe)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), block=st.integers(1, 40))
def test_marked_blocks_are_packed_and_placed(data: st.DataObject, dtype: str, block: int) -> None:
    x = data.draw(vectors(dtype))
    blocks = Blocks(x.size, block)
    flags = data.draw(npst.arrays(np.bool_, blocks.count))
    marks = Marks.of(np.flatnonzero(flags), blocks.count)
    mask = np.repeat(flags, block)[: x.size]
    assert np.array_equal(blocks.elements(marks.positions()), np.flatnonzero(mask))
    packed = blocks.gather(x, marks)
    assert packed.tolist() == x[mask].tolist()
    assert blocks.marked_elements(marks) == packed.size
    assert blocks.scatter(packed, marks).tolist() == np.where(mask, x, 0).tolist()


@pytest.mark.parametrize("beyond", [70, 127])
def test_bits_beyond_the_vector_are_refused(beyond: int) -> None:
    words = np.zeros(2, np.uint64)
    words[1] = np.uint64(1) << np.uint64(beyond - 64)
    out, residual, none = (np.zeros(70, np.float32) for _ in range(3))
    with pytest.raises(ValueError, match="beyond the last"):
        _core.feed_marked_back(out, residual, 1, words, none[:0], words, none[:0])
    with pytest.raises(ValueError, match="beyond the last"):
        _core.average_marked([words], [none[:0]], 70, 1, np.zeros(2, np.uint64), out)
