"""A chunk's change made ready: written as a scatter of bits, however it came."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsewire.weights.tensors import Bytes

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Change:
    """What makes a chunk another one: positions of elements, and their new bits.

    It is absolute, so writing it twice changes nothing. It takes 4 bytes and an element's width
    for each element that differs.
    """

    __slots__ = ("_bits", "_positions")

    def __init__(self, base: Bytes, fresh: Bytes, width: int) -> None:
        """From one state of a chunk to another of as many bytes."""
        old, new = base.view(_WORDS[width]), fresh.view(_WORDS[width])
        self._positions: NDArray[np.uint32] = np.flatnonzero(old != new).astype(np.uint32)
        self._bits = new[self._positions]

    @property
    def nbytes(self) -> int:
        return self._positions.nbytes + self._bits.nbytes

    def write(self, chunk: Bytes) -> None:
        """Make the chunk the new one, in place."""
        chunk.view(self._bits.dtype)[self._positions] = self._bits
