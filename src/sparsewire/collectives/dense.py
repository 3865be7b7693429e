"""Collectives of dense arrays beside all_reduce, each made of one sum.

What one rank alone brings travels as 32-bit words, to which all others add zeros: sums of whole
numbers keep every bit, and the engine sends no zeros.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import COLLECTIVES, DTYPES
from sparsewire.collectives.arguments import Precision, View, codecs, dense_code, view
from sparsewire.purpose import Purpose

_WORD = np.dtype(np.int32)
_SUM = "sum"


@dataclass(frozen=True)
class Sum:
    """One all_reduce of the engine, in the place of another collective.

    `source` and `target` may be one; `deliver` makes the result once it is there.
    """

    source: NDArray[Any]
    target: NDArray[Any]
    count: int
    dtype: int
    op: int
    purpose: Purpose
    deliver: Callable[[], Any]
    codecs: tuple[int, int] = (0, 0)
    seed: int = 0
    memory: object = None


def barrier() -> Sum:
    """A sum of nothing much, for which each rank waits for all."""
    words = np.zeros(1, _WORD)
    return _words(words, words, Purpose(COLLECTIVES["barrier"]), lambda: None, None)


def broadcast(x: Any, root: int, rank: int) -> Sum:
    """Write the `x` of rank `root` over the others'."""
    given = view(x, writable=True)
    memory = _bytes_at(given)
    purpose = _purpose("broadcast", given, root)
    is_whole = given.nbytes % _WORD.itemsize == 0 and given.pointer % _WORD.itemsize == 0
    # Zeros of their own, so that nothing is lost where the call is refused.
    source = np.zeros(_words_for(given.nbytes), _WORD)
    if is_whole:
        target = memory.view(_WORD)
        return _words(target if rank == root else source, target, purpose, lambda: x, given.owner)
    if rank == root:
        source.view(np.uint8)[: given.nbytes] = memory

    def deliver() -> Any:
        memory[:] = source.view(np.uint8)[: given.nbytes]
        return x

    return _words(source, source, purpose, deliver, given.owner)


def all_gather(x: Any, rank: int, world_size: int) -> Sum:
    """Give every rank a list of all ranks' arrays."""
    given = view(x, writable=False)
    # Each rank's part begins at a word of its own.
    words = np.zeros((world_size, _words_for(given.nbytes)), _WORD)
    parts = words.view(np.uint8)[:, : given.nbytes]
    parts[rank] = _bytes_at(given)

    def deliver() -> list[Any]:
        return [_like(given, part) for part in parts]

    return _words(words, words, _purpose("all_gather", given), deliver, None)


def reduce(x: Any, op: str, root: int, rank: int, precision: Precision, seed: int) -> Sum:
    """Give the combination to rank `root`, and None to the others."""

    def deliver(total: NDArray[Any], given: View) -> Any:
        return _like(given, total) if rank == root else None

    return _combined("reduce", x, op, root, precision, seed, deliver)


def reduce_scatter(
    x: Any, op: str, rank: int, world_size: int, precision: Precision, seed: int
) -> Sum:
    """Give each rank its part of the combination, flat."""

    def deliver(total: NDArray[Any], given: View) -> Any:
        begin, end = (r * given.size // world_size for r in (rank, rank + 1))
        size = given.nbytes // max(given.size, 1)
        return _like(given, total[begin * size : end * size], (end - begin,))

    return _combined("reduce_scatter", x, op, 0, precision, seed, deliver)


def _combined(
    collective: str,
    x: Any,
    op: str,
    root: int,
    precision: Precision,
    seed: int,
    deliver: Callable[[NDArray[Any], View], Any],
) -> Sum:
    given = view(x, writable=False)
    total = np.empty(given.nbytes, np.uint8)
    return Sum(
        _bytes_at(given),
        total,
        given.size,
        given.dtype,
        dense_code(op, given.dtype),
        _purpose(collective, given, root),
        lambda: deliver(total, given),
        codecs(precision, given.dtype, op),
        seed,
        given.owner,
    )


def _words(
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    purpose: Purpose,
    deliver: Callable[[], Any],
    memory: object,
) -> Sum:
    code = DTYPES["int32"]
    op = dense_code(_SUM, code)
    return Sum(source, target, source.size, code, op, purpose, deliver, memory=memory)


def _purpose(collective: str, given: View, root: int = 0) -> Purpose:
    return Purpose(COLLECTIVES[collective], root, given.dtype, given.size)


def _words_for(nbytes: int) -> int:
    return -(-nbytes // _WORD.itemsize)


def _bytes_at(given: View) -> NDArray[np.uint8]:
    """The memory of an array, as long as its owner lives."""
    if not given.nbytes:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * given.nbytes).from_address(given.pointer))


def _like(given: View, content: NDArray[np.uint8], shape: tuple[int, ...] | None = None) -> Any:
    """A new array of the given one's kind, dtype and shape, or another shape, with this content."""
    content, owner = content.copy(), cast(Any, given.owner)
    if isinstance(owner, tuple):
        _, array = owner
        return content.view(array.dtype).reshape(array.shape if shape is None else shape)
    made = sys.modules["torch"].from_numpy(content).view(owner.dtype)
    return made.reshape(owner.shape if shape is None else shape)
