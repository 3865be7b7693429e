"""What kernels draw and are tried on: their noise in plain NumPy, and vectors of both dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

Array = NDArray[Any]
DTYPES = ["f4", "f8"]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SPAN = 65536
KEYS = st.integers(0, 2**64 - 1)


def vectors(dtype: str, least: int = 1) -> st.SearchStrategy[Array]:
    sizes = st.floats(2.0**-40, 2.0**40, width=32)
    elements = st.one_of(st.just(0.0), sizes, sizes.map(lambda v: -v))
    return npst.arrays(dtype, st.integers(least, 200), elements=elements)


def mix_64(x: Array) -> Array:
    """The finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix_32(x: Array) -> Array:
    """The finaliser of MurmurHash3."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def noise(key: int, count: int, dtype: Any) -> Array:
    """Of each element as many random bits as its dtype has: uint32 or uint64."""
    number = np.arange(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        start = mix_64(np.array([key], np.uint64) + GOLDEN)
        span = mix_64(start + number // np.uint64(SPAN))
        position = number % np.uint64(SPAN)
        if np.dtype(dtype) == np.float64:
            return mix_64(span + (position + np.uint64(1)) * GOLDEN)
        first, second = span.astype(np.uint32), (span >> np.uint64(32)).astype(np.uint32)
        return mix_32(mix_32(position.astype(np.uint32) + first) ^ second)
