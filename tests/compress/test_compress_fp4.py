"""Four bits: no power is nearer, the contraction is reached, and messages say nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from sparsewire.compress import CompressError, Draws, Fp4

NOTHING_DRAWN = Draws(0)


def squares(x: NDArray[Any]) -> float:
    return float(np.sum(x.astype(np.float64) ** 2))


def nearest(x: NDArray[Any]) -> NDArray[Any]:
    """The nearest powers, of equally near ones the larger."""
    top = 2.0 ** np.floor(np.log2(np.abs(x).max() / 0.75)) if x.any() else 1.0
    powers = np.array([*(top * 2.0**-i for i in range(7)), 0.0])
    which = np.abs(np.abs(x)[:, None] - powers).argmin(1)
    return np.copysign(powers[which], x) * (powers[which] > 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@given(data=st.data())
def test_no_power_is_nearer_and_what_is_promised_is_kept(dtype: str, data: st.DataObject) -> None:
    sizes = st.floats(2.0**-20, 2.0**20, width=32)
    element = st.one_of(st.just(0.0), sizes, sizes.map(lambda v: -v), st.sampled_from([1.0, 1.5]))
    x = data.draw(npst.arrays(dtype, st.integers(1, 40), elements=element))
    operator = Fp4(x.size, dtype=dtype)
    sent = operator.compress(x, NOTHING_DRAWN)
    assert np.array_equal(sent, nearest(x.astype("f8")))
    assert squares(x - sent) <= (1 - operator.contraction) * squares(x) * (1 + 1e-12)


@pytest.mark.parametrize("span", [1, 2, 512, 100_000])
def test_the_worst_vector_is_as_bad_as_promised(span: int) -> None:
    x = np.full(span, np.nextafter(2.0**-7, 0))
    x[0] = 0.75
    sent = Fp4(span, span, "f8").compress(x, NOTHING_DRAWN)
    assert squares(x - sent) / squares(x) == pytest.approx(1 - Fp4(span, span).contraction)


def test_bits() -> None:
    x = np.random.default_rng(1).standard_normal(1 << 16).astype(np.float32)
    assert 3.4 < 8 * len(Fp4(x.size).encode(x, NOTHING_DRAWN)) / x.size < 3.6


def test_the_largest_numbers_become_the_largest_power() -> None:
    x = np.array([3.4e38, -3e38, 1e-45], np.float32)
    assert Fp4(3).compress(x, NOTHING_DRAWN).tolist() == [2.0**127, -(2.0**127), 0]


def test_exponents_and_symbols_beyond_the_last_are_refused() -> None:
    operator = Fp4(4)
    payload = bytearray(operator.encode(np.ones(4, np.float32), NOTHING_DRAWN))
    assert operator.decode(bytes(payload)).tolist() == [1] * 4
    payload[-1] = 15
    with pytest.raises(CompressError, match="alphabet of 15"):
        operator.decode(bytes(payload))
    with pytest.raises(CompressError, match="at least 1 element"):
        Fp4(4, 0)
