"""Bounds of a sum in fixed point: the error that its exponents allow, block by block.

Values of a block go as whole multiples of a step. Each of n ranks rounds by half a step at most.
The step follows from the block's largest magnitude on any rank, so that no sum overflows 31 bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsewire.tools.bench.patterns import Array, Contribution

BLOCK = 256
"""Elements with a common exponent. Where the engine has shorter blocks, errors are less."""

_LARGEST_SUM = 2**31 - 1
_LEAST_EXPONENT = -126

# Types that go in fixed point: bits of the significand, and the exponent of the least last bit.
_DIGITS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}
TYPES = tuple(_DIGITS)

# Elements that are compared at a time, so that little memory is needed beside them.
_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class FixedPointSum:
    """A sum or average of all ranks, and how far fixed point may be from it."""

    rounded: Array
    """The exact value, rounded to its type: shape (elements,)."""
    error: npt.NDArray[np.float64]
    """The largest error of each block, before the result is rounded, too."""

    def first_difference(self, result: Array) -> int | None:
        """Index of the first element that is further away, or None."""
        for start in range(0, len(result), _AT_A_TIME):
            part = slice(start, start + _AT_A_TIME)
            error = np.repeat(self.error[start // BLOCK : (start + _AT_A_TIME) // BLOCK], BLOCK)
            wrong = _are_apart(result[part], self.rounded[part], error)
            if wrong.any():
                return start + int(wrong.argmax())
        return None


def fixed_point_sum(
    contributions: Iterable[Contribution], elements: int, op: str, ranks: int
) -> FixedPointSum:
    """ "sum" or "avg" over the ranks' contributions without rounding, and its bounds."""
    total = np.zeros(elements)
    blocks = np.arange(0, elements, BLOCK)
    largest = np.zeros(len(blocks))
    dtype = total.dtype
    for contribution in contributions:
        own = contribution.dense().reshape(-1)[:elements]
        dtype = own.dtype
        total += own
        magnitudes = np.abs(own.astype(np.float32, copy=False))
        np.maximum(largest, np.maximum.reduceat(magnitudes, blocks), out=largest)
    error = ranks * 0.5 * _step(largest, ranks)
    if op == "avg":
        total /= ranks
        error /= ranks
    return FixedPointSum(total.astype(dtype), error)


def _step(largest: npt.NDArray[np.float64], ranks: int) -> npt.NDArray[np.float64]:
    """The value of one unit of a block's whole numbers: 2^(E + 1 - bits); 0 for no values."""
    bits = (_LARGEST_SUM // ranks).bit_length() - 1
    _, above = np.frexp(largest)
    return np.where(largest > 0, np.ldexp(1.0, np.maximum(above, _LEAST_EXPONENT + 1) - bits), 0.0)


def _are_apart(
    result: Array, rounded: Array, error: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Both are rounded to the type, each by half of its last place at most."""
    found, exact = result.astype(np.float64), rounded.astype(np.float64)
    last_place = (_last_place(found, result.dtype.name) + _last_place(exact, result.dtype.name)) / 2
    # The comparison is negated, because every comparison with a NaN is false.
    return ~(np.abs(found - exact) <= error[: len(found)] + last_place)


def _last_place(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.float64]:
    digits, least = _DIGITS[dtype]
    _, above = np.frexp(values)
    exponents = np.where(values == 0, least, np.maximum(above - digits, least))
    return np.asarray(np.ldexp(1.0, exponents))
