"""The result that an all_reduce must have: contributions combined in rank order, by NumPy alone."""

from collections.abc import Iterator

import numpy as np

from sparsewire.bench.patterns import Array, Contribution, Pattern, expand

_ELEMENTWISE = {"min": np.minimum, "max": np.maximum, "product": np.multiply}

# A backend that adds in another order, or in half precision, differs by this much per rank.
_TOLERANCES = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def reduce_in_rank_order(
    contributions: Iterator[Contribution], pattern: Pattern, elements: int, op: str, ranks: int
) -> Array:
    """Combine the contributions of ranks 0, 1, ... into a vector of shape (elements,).

    Half-width types accumulate in float32 and are rounded once, as the engine does.
    """
    first = next(contributions)
    dtype = first.values.dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    total = expand(first, pattern, elements).astype(wide, copy=False)
    for part in contributions:
        if op in _ELEMENTWISE:
            other = expand(part, pattern, elements).astype(wide, copy=False)
            _ELEMENTWISE[op](total, other, out=total)
        else:
            total[part.units] += part.values.astype(wide, copy=False)
    if op == "avg":
        total /= wide.type(ranks)
    return total.astype(dtype, copy=False).reshape(-1)[:elements]


def first_difference(result: Array, expected: Array, *, exact: bool, ranks: int) -> int | None:
    """Index of the first wrong element, or None. `exact` compares bits, else a tolerance holds."""
    if exact or result.dtype.name not in _TOLERANCES:
        bits = f"u{result.itemsize}"
        wrong = result.view(bits) != expected.view(bits)
    else:
        # The difference of half-width values is taken in float32, where it is exact enough.
        wide = np.promote_types(result.dtype, np.float32) if result.itemsize > 2 else np.float32
        tolerance = _TOLERANCES[result.dtype.name] * ranks
        wrong = ~np.isclose(
            result.astype(wide, copy=False), expected.astype(wide), tolerance, tolerance
        )
    return int(wrong.argmax()) if wrong.any() else None
