"""The plain reference that every all_reduce must equal to the last bit, and inputs to try it on."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int64": np.int64,
}
HALVES = ("float16", "bfloat16")
BLOCK = 256


def element_sparse(rank: int, count: int, dtype: str, density: float) -> Array:
    """`count` elements, about `density` of them non-zero, anywhere; -0.0 among the zeros."""
    values = block_sparse(rank, count, dtype, 1.0, seed=1)
    keep = np.random.default_rng([2, rank, count]).random(count) < density
    zeros = block_sparse(rank, count, dtype, 0.0, seed=3)
    return np.where(keep, values, zeros)


def block_sparse(rank: int, count: int, dtype: str, density: float, seed: int = 0) -> Array:
    """`count` elements, about `density` of the blocks non-zero, and -0.0 among the zeros."""
    random = np.random.default_rng([seed, rank, count, int(density * 1000)])
    blocks = -(-count // BLOCK)
    keep = np.repeat(random.random(blocks) < density, BLOCK)[:count]
    if dtype.startswith("int"):
        return np.where(keep, random.integers(-(2**30), 2**30, count), 0).astype(DTYPES[dtype])
    values = np.where(keep, random.standard_normal(count), random.choice([0.0, -0.0], count))
    return values.astype(DTYPES[dtype])


def reduce_in_rank_order(parts: list[Array], op: str) -> Array:
    """Halves are added in float32 and rounded once; a sum starts at +0.0; avg divides the sum."""
    dtype = parts[0].dtype
    accumulator = np.dtype(np.float32) if dtype.name in HALVES else dtype
    terms = [part.astype(accumulator) for part in parts]
    with np.errstate(all="ignore"):
        if op in ("sum", "avg"):
            total = np.zeros(parts[0].shape, accumulator)
            for term in terms:
                total = total + term
            if op == "avg":
                total = total / accumulator.type(len(parts))
        else:
            total = terms[0]
            for term in terms[1:]:
                total = _combine(total, term, op)
        return total.astype(dtype)


def _combine(total: Array, term: Array, op: str) -> Array:
    if op == "product":
        return total * term
    better = term < total if op == "min" else term > total
    return np.where(better | (term != term), term, total)


def bits(array: Array) -> bytes:
    """The array's memory: equal bits, not merely equal values."""
    return array.tobytes()
