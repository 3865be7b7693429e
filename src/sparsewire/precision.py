"""Precision on the wire: the names users give to the engine's codecs, one per phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sparsewire._core import CODECS, DTYPES
from sparsewire.arrays import dtype_name

Precision: TypeAlias = "str | Sequence[str | None] | None"


def codecs(precision: Precision, dtype: int, op: str) -> tuple[int, int]:
    """Codec codes of what ranks send and of sums, for values of the dtype with code `dtype`.

    Raises ValueError for names that are not known, TypeError for dtypes other than float32.
    """
    first, second = (_code(name) for name in _phases(precision))
    if (first or second) and dtype != DTYPES["float32"]:
        raise TypeError(
            f"precision= is for float32 alone, not {dtype_name(dtype)}: leave it out, or convert"
        )
    if (first or second) and op not in {"sum", "avg"}:
        raise ValueError(f'precision= is for "sum" and "avg", not "{op}"')
    return first, second


def _phases(precision: Precision) -> Sequence[str | None]:
    if precision is None or isinstance(precision, str):
        return precision, precision
    if not isinstance(precision, Sequence) or len(precision) != 2:
        raise ValueError(
            "precision must be a name, or a pair: of what ranks send and of what owners send back, "
            f"not {precision!r}"
        )
    return precision


def _code(name: str | None) -> int:
    if name is None or name == "float32":
        return CODECS["raw"]
    if name not in CODECS or name == "raw":
        known = ", ".join(known for known in CODECS if known != "raw")
        raise ValueError(f"precision {name!r} is not known: use float32, {known}")
    return CODECS[name]
