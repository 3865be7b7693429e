"""The operations on blocks as Triton kernels: each passes over the tensor's memory once.

Only `block_operations` imports this, if it may be used. Elements are read as integers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sparsewire.device.plain import bits

# Elements on which one program works.
_TILE = 2048

# Kernels have no Python types: arguments without annotation are pointers, or numbers of rows.


@triton.jit(do_not_specialize=["count"])
def _mark(rows, marks, count, mask: tl.constexpr, width: tl.constexpr, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = row < count
    place = row[:, None] * width + tl.arange(0, width)[None, :]
    values = tl.load(rows + place, mask=inside[:, None], other=0)
    found = tl.max(((values & mask) != 0).to(tl.int8), axis=1)
    tl.store(marks + row, found, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _gather(rows, indices, gathered, count, width: tl.constexpr, tile: tl.constexpr):
    to = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = to < count
    row = tl.load(indices + to, mask=inside, other=0)
    column = tl.arange(0, width)[None, :]
    values = tl.load(rows + row[:, None] * width + column, mask=inside[:, None], other=0)
    tl.store(gathered + to[:, None] * width + column, values, mask=inside[:, None])


@triton.jit(do_not_specialize=["count"])
def _fill(rows, places, values, count, width: tl.constexpr, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = row < count
    place = tl.load(places + row, mask=inside, other=-1)
    column = tl.arange(0, width)[None, :]
    named = (place >= 0)[:, None]
    found = tl.load(values + place[:, None] * width + column, mask=named, other=0)
    tl.store(rows + row[:, None] * width + column, found, mask=inside[:, None])


class TritonOperations:
    """The operations of `block_operations.Operations`, for rows whose width is a power of two."""

    def mark(self, rows: torch.Tensor) -> torch.Tensor:
        marks = torch.empty(len(rows), dtype=torch.int8, device=rows.device)
        _run(_mark, rows, bits(rows), marks, len(rows), _mask(rows.dtype))
        return marks.view(torch.bool)

    def gather(self, rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        gathered = rows.new_empty(len(indices), rows.shape[1])
        _run(_gather, gathered, rows, indices, gathered, len(indices))
        return gathered

    def fill(self, rows: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
        places = torch.full((len(rows),), -1, dtype=torch.int64, device=rows.device)
        places[indices] = torch.arange(len(indices), device=rows.device)
        _run(_fill, rows, rows, places, values, len(rows))


def _mask(dtype: torch.dtype) -> int:
    """The bits that make a number not zero: all but the sign of a float."""
    return (1 << (8 * dtype.itemsize - 1)) - 1 if dtype.is_floating_point else -1


def _run(kernel: Any, over: torch.Tensor, *arguments: Any) -> None:
    """Launch one program for each tile of rows of `over`, on the current device and stream."""
    count, width = over.shape
    tile = max(1, _TILE // width)
    if count:
        kernel[(triton.cdiv(count, tile),)](*arguments, width=width, tile=tile)
