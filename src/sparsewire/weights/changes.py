"""What a chunk's code says, as arrays: which elements change, and how."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import delta_changes
from sparsewire.errors import ProtocolError
from sparsewire.weights.tensors import Bytes, Format

Bits = NDArray[np.unsignedinteger[Any]]
"""Elements as unsigned integers of their width."""

Indices = NDArray[np.int64]

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def as_bits(data: Bytes, width: int) -> Bits:
    """The same memory, element by element of `width` bytes."""
    return data.view(_BITS[width])


class Changes(NamedTuple):
    """Of a chunk: `positions` ascend, int64, and are None where all elements change.

    `payload` has for each a step (int64: by how many representable numbers it moves), if `form` is
    "steps", or else its new bits.
    """

    form: Literal["same", "steps", "values", "whole"]
    positions: Indices | None
    payload: NDArray[Any]

    @classmethod
    def of(cls, code: bytes | memoryview, count: int, element: Format) -> Changes:
        """What the code of a chunk of `count` elements says; raises ProtocolError for none."""
        found = delta_changes(code, count, *element)
        if found is None:
            raise ProtocolError("the code of a chunk is damaged")
        form, positions, payload = found
        if form != "steps":
            payload = as_bits(payload, element.width)
        return cls(form, None if positions is None else positions.astype(np.int64), payload)


def ordered(bits: Bits, *, floating: bool) -> Bits:
    """Numbers in the order of their values, so that neighbours differ by one: its own inverse.

    A new array, but for integers, which are in order.
    """
    if not floating:
        return bits
    top = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits & top, bits ^ (top - bits.dtype.type(1)), bits)


def moved(bits: Bits, steps: NDArray[np.int64], *, floating: bool) -> Bits:
    """The numbers that lie so many steps away from `bits`, modulo all that the width has."""
    moved = ordered(bits, floating=floating) + steps.astype(bits.dtype)
    return ordered(moved, floating=floating)
