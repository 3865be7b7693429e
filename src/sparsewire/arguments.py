"""What callers may ask of a collective: options are checked, and become the engine's codes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

from sparsewire._core import CODECS, DTYPES, OPS
from sparsewire.arrays import dtype_name

Precision: TypeAlias = "str | Sequence[str | None] | None"

SPARSE_OPS = ("sum", "avg")
_INTEGERS = {DTYPES["int32"], DTYPES["int64"]}
_SEEDS = 2**32


def check_dense(algorithm: str, result: str, seed: int) -> None:
    """Raise TypeError or ValueError for options that dense arrays do not have."""
    if algorithm not in {"auto", "stream"}:
        raise ValueError(f"algorithm {algorithm!r} is for sparse vectors: leave it out")
    if result not in {"auto", "dense"}:
        raise ValueError(f"result {result!r} is for sparse vectors: leave it out")
    check_seed(seed)


def check_seed(seed: object) -> None:
    """Raise TypeError or ValueError for what is no seed."""
    check_integer("seed", seed, _SEEDS)


def check_integer(name: str, value: object, count: int) -> None:
    """Raise TypeError or ValueError for what is no integer from 0 to `count` - 1."""
    # The protocol's own check takes as long as all others together.
    if type(value) is not int and not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if not 0 <= operator.index(value) < count:
        raise ValueError(f"{name} must be from 0 to {count - 1}, not {value}")


def dense_code(op: str, dtype: int) -> int:
    """The code of `op` on dense arrays; raises ValueError and TypeError where it is not for them.

    `dtype` is the code of the elements' dtype.
    """
    if op not in OPS:
        raise ValueError(f"op {op!r} is not known: use one of {', '.join(OPS)}")
    if op == "avg" and dtype in _INTEGERS:
        raise TypeError(
            f'op "avg" of {dtype_name(dtype)} would lose fractions: '
            'use "sum" and divide, or pass floating-point numbers'
        )
    return OPS[op]


def sparse_code(op: str, dtype: int) -> int:
    """As `dense_code`, of `op` on sparse vectors."""
    if op not in SPARSE_OPS:
        raise ValueError(f"op {op!r} is not for sparse vectors: use {' or '.join(SPARSE_OPS)}")
    return dense_code(op, dtype)


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
