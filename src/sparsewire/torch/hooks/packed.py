"""Several arrays as one piece of memory, so that a single copy takes them to a device and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

_ALIGNMENT = 8


class Span(NamedTuple):
    """The span of one array: from byte `begin` on, shape (length,)."""

    begin: int
    length: int
    dtype: torch.dtype

    @property
    def end(self) -> int:
        """The byte after the array, aligned, where the next array may begin."""
        nbytes = self.length * self.dtype.itemsize
        return self.begin + nbytes + -nbytes % _ALIGNMENT

    def of(self, memory: Tensor) -> Tensor:
        """The array in `memory`, which is uint8."""
        stretch = memory[self.begin : self.begin + self.length * self.dtype.itemsize]
        return stretch.view(self.dtype)


def spans_of(sizes: Sequence[tuple[int, torch.dtype]]) -> list[Span]:
    """Spans one after another, for arrays of these numbers of elements and dtypes."""
    spans: list[Span] = []
    for count, dtype in sizes:
        spans.append(Span(spans[-1].end if spans else 0, count, dtype))
    return spans


def joined(tensors: Sequence[Tensor]) -> tuple[Tensor, list[Span]]:
    """A copy of vectors of one device, as bytes, and the span of each vector in it."""
    spans = spans_of([(len(tensor), tensor.dtype) for tensor in tensors])
    pieces = [
        functional.pad(tensor.view(torch.uint8), (0, -(len(tensor) * tensor.itemsize) % _ALIGNMENT))
        for tensor in tensors
    ]
    return torch.cat(pieces), spans


def bytes_of(spans: Sequence[Span]) -> int:
    """Bytes of memory for all these spans."""
    return spans[-1].end if spans else 0


def fill(memory: Tensor, spans: Sequence[Span], arrays: Sequence[NDArray[Any]]) -> None:
    """Write arrays to their spans in `memory` on the host, which is uint8."""
    room: NDArray[np.uint8] = memory.numpy()
    for span, array in zip(spans, arrays, strict=True):
        flat = np.ascontiguousarray(array).view(np.uint8)
        room[span.begin : span.begin + flat.size] = flat


def dtype_of(array: NDArray[Any]) -> torch.dtype:
    """The torch dtype of an array's elements."""
    return _DTYPES[array.dtype.newbyteorder("=")]


_DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.uint8): torch.uint8,
}
