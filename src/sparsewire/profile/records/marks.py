"""Marks of the elements of a gradient that are not zero, and of the blocks that hold one.

As for the engine, -0.0 is zero, and NaN is not. All is done on the gradient's device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

BLOCK = 256

_WORD_BYTES = 8


class Density(NamedTuple):
    """Shares of a vector, from 0 to 1."""

    elements: float
    blocks: float


class Marks:
    """A byte for each element, padded to whole blocks."""

    def __init__(self, elements: int, padded: torch.Tensor) -> None:
        self.elements, self._padded = elements, padded

    @classmethod
    def of(cls, gradient: torch.Tensor) -> Marks:
        """Marks of a gradient of any shape, dense or sparse_coo, in the order of its memory."""
        elements = gradient.numel()
        padded = torch.zeros(_whole(elements), dtype=torch.bool, device=gradient.device)
        if gradient.layout is torch.strided:
            _mark(gradient.detach().reshape(-1), padded[:elements])
        else:
            padded[_places(gradient.detach())] = True
        return cls(elements, padded)

    @property
    def bytes(self) -> torch.Tensor:
        """Bool, shape (elements,)."""
        return self._padded[: self.elements]

    def part(self, begin: int, end: int) -> Marks:
        """Marks of the elements from `begin` to `end`; their blocks begin at `begin`."""
        if (begin, end) == (0, self.elements):
            return self
        padded = self._padded.new_zeros(_whole(end - begin))
        padded[: end - begin] = self._padded[begin:end]
        return Marks(end - begin, padded)

    def row_share(self, width: int) -> float:
        """The share of rows of so many elements that are not zero; waits for the device."""
        rows = self.bytes.view(-1, width)
        return int(rows.any(1).count_nonzero()) / max(1, len(rows))

    def counts(self) -> torch.Tensor:
        """Non-zeros of each block, int32, shape (blocks,), on the device."""
        # Eight bytes are added at once: up to 32 ones in each do not overflow.
        words = self._padded.view(torch.uint8).view(torch.int64)
        rows = words.view(-1, BLOCK // _WORD_BYTES).sum(1)
        return rows.view(torch.uint8).view(-1, _WORD_BYTES).sum(1, dtype=torch.int32)


class Counted:
    """Counts of blocks, which stay on the device until they are read."""

    def __init__(self, marks: Marks) -> None:
        counts = marks.counts()
        self._elements = marks.elements
        self.blocks = counts.ne(0)
        self._sums = torch.stack([counts.sum(), self.blocks.sum()])

    def density(self) -> Density:
        """Waits for the device."""
        elements, blocks = self._sums.tolist()
        return Density(elements / max(1, self._elements), blocks / max(1, len(self.blocks)))


def _whole(elements: int) -> int:
    return -(-elements // BLOCK) * BLOCK


def _mark(flat: torch.Tensor, out: torch.Tensor) -> None:
    if flat.device.type == "cpu" and flat.dtype in (torch.float32, torch.float64):
        # Several times as fast as torch's.
        np.not_equal(flat.numpy(), 0, out=out.numpy())
    else:
        torch.ne(flat, 0, out=out)


def _places(gradient: torch.Tensor) -> torch.Tensor:
    """Positions of a sparse_coo gradient's non-zeros in the dense gradient."""
    whole = gradient.coalesce()
    indices, values = whole.indices(), whole.values()
    row = values[0].numel() if len(values) else 1
    places = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for axis in range(indices.shape[0]):
        places = places * gradient.shape[axis] + indices[axis]
    within = torch.arange(row, device=indices.device)
    return (places[:, None] * row + within)[values.reshape(-1, row).ne(0)]
