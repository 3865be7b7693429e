"""How much of vectors is not zero, by element and by block."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsewire.measure.wire_limit import BLOCK


@dataclass(frozen=True)
class Density:
    """Fractions, from 0 to 1, of the elements and of the 256-element blocks that are not zero."""

    element: float
    block: float

    @classmethod
    def of(cls, vectors: Iterable[npt.NDArray[Any]]) -> "Density":
        """Measure all vectors together; each one begins a new block."""
        found = [(vector != 0, nonzero_blocks(vector)) for vector in vectors]
        elements, blocks = (np.concatenate(marks) for marks in zip(*found, strict=True))
        return cls(float(elements.mean()), float(blocks.mean()))


def nonzero_blocks(vector: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which blocks of `BLOCK` elements hold a non-zero; the last block may be shorter."""
    return np.logical_or.reduceat(vector != 0, np.arange(0, len(vector), BLOCK))
