"""Collectives of dense arrays, each made of one sum.

Data of one rank alone is sent as 32-bit words, to which all other ranks add zeros: sums of integers
keep every bit, and the engine sends no zeros.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import COLLECTIVES, DTYPES
from sparsewire.collectives.request import Request
from sparsewire.collectives.views import View, check_out, codecs, dense_code, view
from sparsewire.purpose import Purpose

_WORD = np.dtype(np.int32)


class Sum(NamedTuple):
    """One all_reduce of the engine, for a collective. `deliver` makes the collective's result.

    `source` and `target` are addresses, and may be equal; `memory` keeps both arrays alive.
    """

    source: int
    target: int
    elements: int
    dtype: int
    op: int
    deliver: Callable[[], Any]
    memory: object
    codecs: tuple[int, int] = (0, 0)
    seed: int = 0
    purpose: Purpose | None = None


def barrier() -> Sum:
    """A sum of a single zero, for which each rank waits for all ranks."""
    words = np.zeros(1, _WORD)
    return _of_words(words, words, Purpose(COLLECTIVES["barrier"]), lambda: None)


def sum_for(request: Request, rank: int, world_size: int) -> Sum:
    """The sum for a request on a dense array; raises TypeError and ValueError for unusable ones."""
    return _SUMS[request.collective](request, rank, world_size)


def _all_reduce(request: Request, rank: int, world_size: int) -> Sum:
    x, out, op = request.x, request.out, request.op
    source = target = view(x, writable=out is None)
    if out is not None:
        target = view(out, writable=True)
        check_out(source, target)
    result = x if out is None else out
    return Sum(
        source.pointer,
        target.pointer,
        source.size,
        source.dtype,
        dense_code(op, source.dtype),
        lambda: result,
        (source.owner, target.owner),
        codecs(request.precision, source.dtype, op),
        request.seed,
    )


def _broadcast(request: Request, rank: int, world_size: int) -> Sum:
    """Overwrite the `x` of the other ranks with the root's."""
    x, speaks = request.x, rank == request.root
    given = view(x, writable=True)
    memory = _bytes_at(given)
    purpose = _purpose(request, given)
    is_whole = given.nbytes % _WORD.itemsize == 0 and given.pointer % _WORD.itemsize == 0
    # Separate zeros, so that `x` keeps its values if the call is refused.
    source = np.zeros(_words_for(given.nbytes), _WORD)
    if is_whole:
        target = memory.view(_WORD)
        return _of_words(target if speaks else source, target, purpose, lambda: x, given.owner)
    if speaks:
        source.view(np.uint8)[: given.nbytes] = memory

    def deliver() -> Any:
        memory[:] = source.view(np.uint8)[: given.nbytes]
        return x

    return _of_words(source, source, purpose, deliver, given.owner)


def _all_gather(request: Request, rank: int, world_size: int) -> Sum:
    """Give every rank a list of all ranks' arrays."""
    given = view(request.x, writable=False)
    # Each rank's part begins at a word boundary.
    words = np.zeros((world_size, _words_for(given.nbytes)), _WORD)
    parts = words.view(np.uint8)[:, : given.nbytes]
    parts[rank] = _bytes_at(given)

    def deliver() -> list[Any]:
        return [_like(given, part) for part in parts]

    return _of_words(words, words, _purpose(request, given), deliver)


def _reduce(request: Request, rank: int, world_size: int) -> Sum:
    """Give the combination to the root, and None to the others."""

    def deliver(total: NDArray[Any], given: View) -> Any:
        return _like(given, total) if rank == request.root else None

    return _combined(request, deliver)


def _reduce_scatter(request: Request, rank: int, world_size: int) -> Sum:
    """Give each rank its part of the combination, flat."""

    def deliver(total: NDArray[Any], given: View) -> Any:
        begin, end = (r * given.size // world_size for r in (rank, rank + 1))
        size = given.nbytes // max(given.size, 1)
        return _like(given, total[begin * size : end * size], (end - begin,))

    return _combined(request, deliver)


_SUMS: dict[str, Callable[[Request, int, int], Sum]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
}


def _combined(request: Request, deliver: Callable[[NDArray[Any], View], Any]) -> Sum:
    """Combine the arrays in new memory; `deliver` makes the result from this memory."""
    given = view(request.x, writable=False)
    total = np.empty(given.nbytes, np.uint8)
    return Sum(
        given.pointer,
        total.ctypes.data,
        given.size,
        given.dtype,
        dense_code(request.op, given.dtype),
        lambda: deliver(total, given),
        (given.owner, total),
        codecs(request.precision, given.dtype, request.op),
        request.seed,
        _purpose(request, given),
    )


def _of_words(
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    purpose: Purpose,
    deliver: Callable[[], Any],
    owner: object = None,
) -> Sum:
    dtype = DTYPES["int32"]
    return Sum(
        source.ctypes.data,
        target.ctypes.data,
        source.size,
        dtype,
        dense_code("sum", dtype),
        deliver,
        (source, target, owner),
        purpose=purpose,
    )


def _purpose(request: Request, given: View) -> Purpose:
    return Purpose(COLLECTIVES[request.collective], request.root, given.dtype, given.size)


def _words_for(nbytes: int) -> int:
    return -(-nbytes // _WORD.itemsize)


def _bytes_at(given: View) -> NDArray[np.uint8]:
    """The bytes of an array, valid as long as its owner lives."""
    if not given.nbytes:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * given.nbytes).from_address(given.pointer))


def _like(given: View, content: NDArray[np.uint8], shape: tuple[int, ...] | None = None) -> Any:
    """A new array with this content, of the kind and dtype of `given`, and by default its shape."""
    content, owner = content.copy(), cast(Any, given.owner)
    if isinstance(owner, tuple):
        _, array = owner
        return content.view(array.dtype).reshape(array.shape if shape is None else shape)
    torch = sys.modules["torch"]
    made = torch.empty(0, dtype=owner.dtype)
    if content.size:  # Torch cannot view bytes of nothing as elements.
        made = torch.from_numpy(content).view(owner.dtype)
    return made.reshape(owner.shape if shape is None else shape)
