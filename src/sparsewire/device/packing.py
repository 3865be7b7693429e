"""Finds the blocks of a dense tensor that are not zero, packs them, and puts blocks back.

This happens on the tensor's device, by the operations that are chosen for that device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from sparsewire.device.block_operations import operations_for
from sparsewire.device.plain import bits

BLOCK = 256
"""Elements of a block, which is a row of the engine's sparse vector."""

# Spreads the sampled blocks, without a regular stride that a pattern could match.
_SPREAD = 0x9E3779B1


class Packed(NamedTuple):
    """Whole blocks that are not zero, as bits: indices (n,) int64, ascending; rows (n, BLOCK)."""

    indices: torch.Tensor
    rows: torch.Tensor


class Blocks:
    """Contiguous memory as `rows`, shape (blocks, BLOCK), and a `tail` of fewer elements."""

    def __init__(self, memory: torch.Tensor) -> None:
        # `data`, because autograd need not know of this, as it does not of the engine's writes.
        flat = memory.data.view(-1)
        blocks = flat.numel() // BLOCK
        self.flat = flat
        self.rows = flat[: blocks * BLOCK].view(blocks, BLOCK)
        self.tail = flat[blocks * BLOCK :]
        self._operations = operations_for(memory.device)

    def pack(self) -> Packed:
        """The rows that are not zero. Blocks until the device has counted them."""
        indices = self._operations.mark(self.rows).nonzero().squeeze(1)
        rows = bits(self.rows)
        if len(indices) < len(rows):
            rows = self._operations.gather(rows, indices)
        return Packed(indices, rows)

    def put(self, indices: torch.Tensor, rows: torch.Tensor, tail: torch.Tensor) -> None:
        """Make `rows` the only blocks that are not zero; all are bits, `tail` as long as ours."""
        self._operations.fill(bits(self.rows), indices, rows)
        bits(self.tail).copy_(tail, non_blocking=True)

    def sample(self, count: int) -> torch.Tensor:
        """Marks of `count` rows, int32. For all tensors of one size the rows are the same."""
        numbers = torch.arange(1, count + 1, dtype=torch.int64, device="cpu")
        places = (numbers * _SPREAD) % len(self.rows)
        chosen = self.rows.index_select(0, places.to(self.rows.device))
        return self._operations.mark(chosen).to(torch.int32)
