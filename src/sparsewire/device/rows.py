"""Rows of blocks in pinned memory, between a device and the engine.

The engine has only whole rows: a tail of fewer elements than a block is filled up with zeros.
"""

from __future__ import annotations

import torch

from sparsewire.device.packing import BLOCK, Blocks, Packed
from sparsewire.device.pinned import Loan
from sparsewire.device.plain import bits

_INDEX_BYTES = 8


class Rows:
    """Pinned memory for `count` rows of a tensor's blocks, and for one more row for its tail.

    `values` has shape (count + 1, BLOCK), or (count, BLOCK) without a tail. `indices`, int64, has
    one index per row.
    """

    def __init__(self, loan: Loan, count: int, blocks: Blocks) -> None:
        self._blocks = blocks
        self.count = count
        self.tails = int(len(blocks.tail) > 0)
        """1 if there is a tail, else 0."""
        dtype, size = blocks.flat.dtype, blocks.flat.element_size()
        room = count + self.tails
        end = room * BLOCK * size
        memory = loan.take(end + room * _INDEX_BYTES)
        self.values = memory[:end].view(dtype).view(room, BLOCK)
        self.indices = memory[end : end + room * _INDEX_BYTES].view(torch.int64)

    @property
    def tail(self) -> torch.Tensor:
        """The elements of the tail, as bits."""
        length = len(self._blocks.tail)
        return bits(self.values)[self.count, :length] if length else bits(self.values[:0].view(-1))

    def end_with_tail(self) -> int:
        """Fill the tail's row up with zeros; 1 if there is a tail that is not zero, else 0."""
        if not self.tails:
            return 0
        self.values[self.count, len(self._blocks.tail) :] = 0
        self.indices[self.count] = len(self._blocks.rows)
        return int(self.values[self.count].any())

    def fill(self, indices: torch.Tensor, values: torch.Tensor) -> None:
        """Take rows from the host. The tail's row is among them if it is not zero."""
        self.tail.zero_()
        self.values[: len(values)].copy_(values)
        self.indices[: len(indices)].copy_(indices)


def download(packed: Packed, blocks: Blocks, rows: Rows) -> None:
    """Start to fill `rows` from the device."""
    rows.indices[: rows.count].copy_(packed.indices, non_blocking=True)
    bits(rows.values)[: rows.count].copy_(packed.rows, non_blocking=True)
    rows.tail.copy_(bits(blocks.tail), non_blocking=True)


def upload(rows: Rows, blocks: Blocks) -> None:
    """Start to make `rows` the only blocks on the device that are not zero."""
    device = blocks.flat.device
    indices = rows.indices[: rows.count].to(device, non_blocking=True)
    values = bits(rows.values)[: rows.count].to(device, non_blocking=True)
    blocks.put(indices, values, rows.tail)
