"""Patterns of non-zeros, and the data that a seed makes of them on each rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsewire.errors import ExperimentError

Array = npt.NDArray[Any]

_PATTERN = re.compile(
    r"(random|blocks:(?P<unit>[1-9]\d*)|zipf:(?P<exponent>\d+\.?\d*))"
    r"(,\s*(?P<layout>same|apart))?"
)

# Below one place in so many, drawing places is faster than drawing a number for each place.
_FEW = 20


@dataclass(frozen=True)
class Pattern:
    """Non-zeros come in aligned units of `unit` elements, on every rank at its own positions.

    `same` puts them at the same positions on every rank, `apart` at positions that no two ranks
    share. `random` is units of one element. With an
    `exponent` s, single elements are drawn by Zipf's law: the odds of position i are (i+1)^-s, so
    that all ranks share the first ones, as with words that are numbered by their frequency.
    """

    unit: int
    same: bool = False
    exponent: float | None = None
    apart: bool = False

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read "blocks:256", "random" or "zipf:1.1"; with ",same", or, but for zipf, ",apart".

        Raises ExperimentError for anything else.
        """
        match = _PATTERN.fullmatch(text)
        if match is None or (match["layout"] == "apart" and match["exponent"]):
            raise ExperimentError(
                f"pattern {text!r} is unknown; use blocks:256, blocks:256,same, blocks:256,apart, "
                "random or zipf:1.1"
            )
        unit, exponent, layout = int(match["unit"] or 1), match["exponent"], match["layout"]
        return cls(unit, layout == "same", float(exponent) if exponent else None, layout == "apart")

    @property
    def in_words(self) -> str:
        """What legends call it."""
        kind = "elements anywhere" if self.unit == 1 else f"blocks of {self.unit}"
        if self.exponent is not None:
            kind = f"elements by a power law ({self.exponent:g})"
        if self.apart:
            return f"{kind}, none on two ranks"
        return f"{kind}, the same on every rank" if self.same else kind


def in_words(pattern: str) -> str:
    """The name of a case's pattern in legends; the pattern may be a recorded one."""
    return Pattern.parse(pattern).in_words if _PATTERN.fullmatch(pattern) else pattern


@dataclass(frozen=True)
class Contribution:
    """The non-zero units of one rank, of `total`: row i of `values` lies at unit `units[i]`."""

    units: npt.NDArray[np.int64] | slice
    values: Array
    total: int

    def dense(self) -> Array:
        """All units, shape (units, elements per unit)."""
        dense = np.zeros((self.total, self.values.shape[1]), self.values.dtype)
        dense[self.units] = self.values
        return dense


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a sparsewire dtype name; bfloat16 needs the package ml_dtypes."""
    if name == "bfloat16":
        try:
            # Importing it makes the name known to NumPy.
            import ml_dtypes  # noqa: F401
        except ImportError:
            raise ExperimentError("bfloat16 needs ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(name)


def contribute(
    pattern: Pattern, elements: int, density: float, dtype: np.dtype[Any], seed: int, rank: int
) -> Contribution:
    """One rank's contribution. Any process can make any rank's data again from the same seed.

    Raises ExperimentError if ranks must not overlap and no room is left for this one.
    """
    # The last unit may reach past the end.
    total = -(-elements // pattern.unit)
    count = max(1, round(density * total))
    place = np.random.default_rng([seed, 0 if pattern.same else rank])
    units: npt.NDArray[np.int64] | slice = slice(None)
    if pattern.apart:
        units = _own_part(np.random.default_rng([seed, 0]), total, count, rank)
    elif count < total:
        units = _choose(place, total, count, pattern.exponent)
    values = random_values(np.random.default_rng([seed, rank, 1]), count, pattern.unit, dtype)
    return Contribution(units, values, total)


def _own_part(rng: np.random.Generator, total: int, count: int, rank: int) -> npt.NDArray[np.int64]:
    """`count` of `total` places, ascending; other ranks, with the same generator, have others."""
    if (rank + 1) * count > total:
        raise ExperimentError(
            "there is no room for ranks apart: their densities add up to more than 1"
        )
    order = rng.permutation(total)
    return np.sort(order[rank * count : (rank + 1) * count])


def _choose(
    rng: np.random.Generator, total: int, count: int, exponent: float | None
) -> npt.NDArray[np.int64]:
    """`count` of `total` places, each only once, ascending; with an exponent, by Zipf's law.

    The smallest of exponential variables over their weights are a weighted sample without
    replacement (Efraimidis and Spirakis, Information Processing Letters 97, 2006).
    """
    if exponent is None and count * _FEW < total:
        return np.sort(rng.choice(total, count, replace=False, shuffle=False))
    keys = rng.standard_exponential(total)
    if exponent is not None:
        keys *= np.arange(1, total + 1, dtype=np.float64) ** exponent
    largest = np.partition(keys, count - 1)[count - 1]
    return np.flatnonzero(keys <= largest)


def random_values(rng: np.random.Generator, count: int, unit: int, dtype: np.dtype[Any]) -> Array:
    """Values that are not zero but by a chance in millions, shape (count, unit)."""
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 100, (count, unit), dtype=dtype)
    # Both signs and full mantissas, so that sums in another order give other bits.
    drawn = np.float64 if dtype == np.float64 else np.float32
    values: Array = rng.random((count, unit), dtype=drawn)
    values -= drawn(0.5)
    return values.astype(dtype, copy=False)
