"""Where the non-zeros lie: patterns, and the data that a seed makes of them on each rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsewire.bench.errors import BenchError
from sparsewire.bench.sizes import split_list

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Pattern:
    """Non-zeros come in aligned units of `unit` elements, on every rank at its own positions.

    `same` puts them at the same positions on every rank. `random` is units of one element.
    """

    unit: int
    same: bool = False

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read "blocks:256", "blocks:256,same", "random"; raises BenchError for all else."""
        kind, *flags = split_list(text)
        name, _, unit = kind.partition(":")
        shape_known = (name == "random" and not unit) or (name == "blocks" and unit.isdigit())
        if not shape_known or flags not in ([], ["same"]) or unit == "0":
            raise BenchError(
                f"pattern {text!r} is unknown; use blocks:256, blocks:256,same or random"
            )
        return cls(int(unit or 1), bool(flags))

    def __str__(self) -> str:
        kind = "random" if self.unit == 1 else f"blocks:{self.unit}"
        return f"{kind},same" if self.same else kind


@dataclass(frozen=True)
class Contribution:
    """The non-zero units of one rank: row i of `values` lies at unit `units[i]`."""

    units: npt.NDArray[np.int64] | slice
    values: Array


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a sparsewire dtype name; bfloat16 needs the package ml_dtypes."""
    if name == "bfloat16":
        try:
            # Importing it makes the name known to NumPy.
            import ml_dtypes  # noqa: F401
        except ImportError:
            raise BenchError("bfloat16 needs ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(name)


def unit_count(pattern: Pattern, elements: int) -> int:
    """Units that cover all elements; the last one may reach past the end."""
    return -(-elements // pattern.unit)


def contribute(
    pattern: Pattern, elements: int, density: float, dtype: np.dtype[Any], seed: int, rank: int
) -> Contribution:
    """What one rank adds. Any process can make any rank's data again from the same seed."""
    total = unit_count(pattern, elements)
    count = max(1, round(density * total))
    place = np.random.default_rng([seed, 0 if pattern.same else rank])
    units: npt.NDArray[np.int64] | slice = slice(None)
    if count < total:
        units = np.sort(place.choice(total, count, replace=False, shuffle=False))
    values = _values(np.random.default_rng([seed, rank, 1]), count, pattern.unit, dtype)
    return Contribution(units, values)


def _values(rng: np.random.Generator, count: int, unit: int, dtype: np.dtype[Any]) -> Array:
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 100, (count, unit), dtype=dtype)
    # Both signs and full mantissas, so that sums in another order give other bits.
    drawn = np.float64 if dtype == np.float64 else np.float32
    values: Array = rng.random((count, unit), dtype=drawn)
    values -= drawn(0.5)
    return values.astype(dtype, copy=False)


def expand(contribution: Contribution, pattern: Pattern, elements: int) -> Array:
    """The contribution as a dense array of shape (units, elements per unit)."""
    values = contribution.values
    dense = np.zeros((unit_count(pattern, elements), pattern.unit), values.dtype)
    dense[contribution.units] = values
    return dense


def nonzero_blocks(vector: Array, block: int) -> npt.NDArray[np.bool_]:
    """Which blocks of `block` elements hold a non-zero; the last block may be shorter."""
    starts = np.arange(0, len(vector), block)
    return np.logical_or.reduceat(vector != 0, starts)
