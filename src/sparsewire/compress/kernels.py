"""The loops over elements that operators spend their time in, as pure functions of arrays and keys.

Randomness is by counter: a key and a position give the same number wherever and in whichever order
they are evaluated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def words(key: int, count: int, begin: int = 0) -> NDArray[np.uint64]:
    """Random words `begin`, `begin + 1`, ... of a key, shape (count,).

    SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
    """
    state = np.arange(begin + 1, begin + count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    state += _mix(np.array([(key + _GOLDEN) % 2**64], np.uint64))
    return _mix(state)


def uniforms(key: int, count: int, begin: int = 0) -> NDArray[np.float64]:
    """Random numbers in [0, 1), multiples of 2^-53, shape (count,)."""
    high: NDArray[np.uint64] = words(key, count, begin) >> np.uint64(11)
    return high.astype(np.float64) * 2.0**-53


def random_subset(key: int, count: int, universe: int) -> NDArray[np.int64]:
    """`count` of the numbers below `universe`, all subsets equally likely; ascending.

    Numbers are drawn until `count` different ones are found; of more than half, those left out are.
    """
    if 2 * count > universe:
        absent = np.zeros(universe, bool)
        absent[random_subset(key, universe - count, universe)] = True
        return np.flatnonzero(~absent)
    found, begin = np.empty(0, np.int64), 0
    while found.size < count:
        more = (count - found.size) * 3 // 2 + 8
        drawn = (uniforms(key, more, begin) * universe).astype(np.int64)
        together = np.concatenate([found, drawn])
        found = together[np.sort(np.unique(together, return_index=True)[1])][:count]
        begin += more
    return np.sort(found)


def largest(sizes: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Positions of the `count` largest of `sizes`, ascending; of equal ones the first are taken."""
    if count >= sizes.size:
        return np.arange(sizes.size)
    limit = np.partition(sizes, sizes.size - count)[sizes.size - count]
    above = np.flatnonzero(sizes > limit)
    equal = np.flatnonzero(sizes == limit)[: count - above.size]
    return np.sort(np.concatenate([above, equal]))


def round_linear(sizes: NDArray[np.float64], key: int) -> NDArray[np.int64]:
    """Round sizes >= 0 to one of the two integers around them, so that the mean is kept."""
    whole = np.floor(sizes)
    return (whole + (uniforms(key, sizes.size) < sizes - whole)).astype(np.int64)


def round_to_powers(fractions: NDArray[np.float64], levels: int, key: int) -> NDArray[np.int64]:
    """Round fractions in [0, 1] to 0 or 2^(l - levels), l = 1 ... levels; the mean is kept.

    Returns l, or 0 for a zero.
    """
    mantissa, exponent = np.frexp(fractions)
    # The exponent of zero is zero, as if it were large.
    lower = np.where(fractions > 0, exponent.astype(np.int64) - 1 + levels, 0)
    chance = np.where(lower >= 1, 2 * mantissa - 1, fractions * 2.0 ** (levels - 1))
    return np.maximum(lower, 0) + (uniforms(key, fractions.size) < chance)


def round_to_exponents(x: NDArray[Any], key: int) -> NDArray[np.int64]:
    """Round |x| to one of the two powers of two around it, so that the mean is kept.

    Returns the exponents as float32 or float64 stores them; 0 stands for zero. Below the smallest
    normal number the two are zero and that number. The carry of mantissa + random bits decides.
    """
    single = x.dtype == np.float32
    mantissa_bits, word = (23, np.uint32) if single else (52, np.uint64)
    magnitude = np.abs(x).view(word)
    noise = (words(key, x.size) >> np.uint64(64 - mantissa_bits)).astype(word)
    carried: NDArray[Any] = (magnitude + noise) >> word(mantissa_bits)
    return carried.astype(np.int64)


def powers_of_two(
    exponents: NDArray[np.int64], negative: NDArray[np.bool_], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The numbers of these stored exponents and signs; the inverse of `round_to_exponents`."""
    single = dtype == np.float32
    mantissa_bits, bits, word = (23, 32, np.uint32) if single else (52, 64, np.uint64)
    pattern: NDArray[Any] = exponents.astype(word) << word(mantissa_bits)
    pattern |= negative.astype(word) << word(bits - 1)
    return pattern.view(dtype)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    x ^= x >> np.uint64(31)
    return x
