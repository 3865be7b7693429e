"""Reductions: the engine's codes for the operations that callers name, and what each is for."""

from __future__ import annotations

from sparsewire._core import DTYPES, OPS
from sparsewire.arrays import dtype_name

SPARSE_OPS = ("sum", "avg")
_INTEGERS = {DTYPES["int32"], DTYPES["int64"]}


def dense_code(op: str, dtype: int) -> int:
    """The code of `op` on dense arrays; raises ValueError and TypeError where it is not for them.

    `dtype` is the code of the elements' dtype.
    """
    if op not in OPS:
        raise ValueError(f"op {op!r} is not known: use one of {', '.join(OPS)}")
    return _code(op, dtype)


def sparse_code(op: str, dtype: int) -> int:
    """As `dense_code`, of `op` on sparse vectors."""
    if op not in SPARSE_OPS:
        raise ValueError(f"op {op!r} is not for sparse vectors: use {' or '.join(SPARSE_OPS)}")
    return _code(op, dtype)


def _code(op: str, dtype: int) -> int:
    if op == "avg" and dtype in _INTEGERS:
        raise TypeError(
            f'op "avg" of {dtype_name(dtype)} would lose fractions: '
            'use "sum" and divide, or pass floating-point numbers'
        )
    return OPS[op]
