"""What shows: the elements that change a bfloat16 are sent, and the others have a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from sparsewire.compress import CompressError, Draws, Visible, as_contraction, parse

NOTHING_DRAWN = Draws(0)


def as_half(x: NDArray[Any]) -> NDArray[np.float32]:
    """The nearest bfloat16, by torch; zero has no sign."""
    half = torch.from_numpy(x.astype(np.float32)).bfloat16().float().numpy()
    rounded: NDArray[np.float32] = half + np.float32(0)
    return rounded


torch = pytest.importorskip("torch")

ELEMENTS = st.one_of(
    st.floats(-(2.0**60), 2.0**60, width=32), st.floats(-1, 1, width=16), st.just(-0.0)
)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("rate", [1.0, 0.7])
@given(data=st.data())
def test_what_is_sent_shows_and_the_rest_has_a_bound(
    dtype: str, rate: float, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, 80))
    parameters = data.draw(npst.arrays(dtype, size, elements=ELEMENTS))
    steps = data.draw(npst.arrays(dtype, size, elements=st.floats(-(2.0**-6), 2.0**-6, width=32)))
    x = (parameters * steps).astype(dtype)
    operator = Visible(size, rate, dtype, parameters)
    sent = operator.compress(x, NOTHING_DRAWN)
    shows = as_half(parameters) != as_half(parameters - operator.dtype.type(rate) * x)
    assert np.array_equal(sent, np.where(shows, x, 0))
    dropped = (x - sent).astype("f8")
    assert np.sum(dropped**2) <= operator.error_bound * (1 + 1e-6)


def test_without_parameters_all_that_is_not_zero_shows() -> None:
    operator = parse("visible", 5)
    x = np.array([0, -0.0, 1e-30, 3, -1], np.float32)
    assert operator.compress(x, NOTHING_DRAWN).tolist() == x.tolist()
    assert operator.encode(np.zeros(5), NOTHING_DRAWN) == b""


def test_it_follows_parameters_through_others() -> None:
    operator = parse("sign:1+visible:0.5", 2)
    operator.follow(np.array([1.0, 1e-3]))
    x = np.array([1e-3, 1e-3], np.float32)
    assert operator.compress(x, NOTHING_DRAWN).tolist() == [0, x[1]]


def test_parameters_may_change_afterwards() -> None:
    parameters = np.ones(1, np.float32)
    operator = Visible(1, parameters=parameters)
    parameters[0] = 0
    assert operator.encode(np.full(1, 1e-3), NOTHING_DRAWN) == b""


def test_error_feedback_takes_it_for_its_bound() -> None:
    operator = parse("visible", 10)
    assert as_contraction(operator) is operator
    with pytest.raises(CompressError, match="needs a contraction"):
        as_contraction(parse("natural+visible", 10))


@pytest.mark.parametrize("rate", [0.0, -1.0, np.inf, np.nan])
def test_settings_are_checked(rate: float) -> None:
    with pytest.raises(CompressError, match="the rate must be"):
        Visible(3, rate)
    with pytest.raises(CompressError, match="takes 3 elements"):
        Visible(3).follow(np.ones(4))
