"""What the engine sees of a sparse vector: indices and values in memory, in rows that it can carry.

Rows of 16 to 4096 elements travel as rows; shorter and longer ones are cut into what the engine
has a format for, and put together again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import ROW_MAX, ROW_MIN
from sparsewire.arrays import View, view
from sparsewire.sparse_vector import SparseVector


@dataclass(frozen=True)
class SparseInput:
    """A sparse vector ready for the engine.

    The user's rows of `width` elements were cut into `pieces` positions of `row` elements each.
    """

    indices: NDArray[Any]
    values: View
    length: int
    width: int
    row: int

    @property
    def pieces(self) -> int:
        return self.width // self.row

    @property
    def positions(self) -> int:
        """The length in the engine's positions."""
        return self.length * self.pieces


def is_sparse(x: object) -> bool:
    """Whether `x` is a SparseVector or a torch sparse_coo tensor."""
    if isinstance(x, SparseVector):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor) and x.layout is torch.sparse_coo


def read(x: Any) -> SparseInput:
    """The engine's view of a SparseVector or of a coalesced torch tensor; copies only to cut rows.

    Raises TypeError and ValueError for dtypes and devices that the engine has no use for.
    """
    if isinstance(x, SparseVector):
        width = 1 if x.values.ndim == 1 else x.values.shape[1]
        return _cut(x.indices, view(x.values, writable=False), x.length, width)
    return _read_torch(x)


def coalesced(x: Any) -> Any:
    """`x`, with the duplicate positions of a torch tensor summed up."""
    return x if isinstance(x, SparseVector) or x.is_coalesced() else x.coalesce()


def _read_torch(x: Any) -> SparseInput:
    if not x.is_cpu:
        raise ValueError(f"the tensor is on {x.device}: pass x.cpu()")
    sparse_shape = x.shape[: x.sparse_dim()]
    indices = x._indices()
    flat = _flat(indices.numpy(), tuple(sparse_shape))
    values = x._values().detach().resolve_neg().contiguous()
    width = int(np.prod(x.shape[x.sparse_dim() :], dtype=np.int64))
    length = int(np.prod(sparse_shape, dtype=np.int64))
    return _cut(np.ascontiguousarray(flat), view(values, writable=False), length, width)


def _flat(indices: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """One index for several; -1 where one is out of range, so that the engine tells all ranks."""
    if len(shape) == 1:
        flat: NDArray[np.int64] = indices[0]
        return flat
    bounds = np.array(shape)[:, None]
    inside = ((indices >= 0) & (indices < bounds)).all(axis=0)
    strides = np.append(np.cumprod(shape[:0:-1])[::-1], 1).astype(np.int64)
    return np.where(inside, strides @ indices, -1)


def _cut(indices: NDArray[Any], values: View, length: int, width: int) -> SparseInput:
    row = row_for(width)
    pieces = width // row
    if pieces > 1:
        # What is out of range stays so, and makes the engine tell all ranks.
        inside = (indices >= 0) & (indices < length)
        first = np.where(inside, indices.astype(np.int64) * pieces, -pieces)
        narrow = length * pieces <= np.iinfo(indices.dtype).max
        cut = (first[:, None] + np.arange(pieces)).reshape(-1)
        indices = cut.astype(indices.dtype) if narrow else cut
    return SparseInput(indices, values, length, width, row)


def row_for(width: int) -> int:
    """The largest row that the engine can carry and that divides rows of `width` elements."""
    for pieces in range(1, width // ROW_MIN + 1):
        if width % pieces == 0 and width // pieces <= ROW_MAX:
            return width // pieces
    return 1


def join_rows(
    indices: NDArray[Any], values: NDArray[Any], given: SparseInput
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Put positions of `given.row` elements together to rows of `given.width` again."""
    if given.pieces == 1:
        return indices, values
    rows, where = np.unique(indices // given.pieces, return_inverse=True)
    joined = np.zeros((len(rows), given.pieces, given.row), values.dtype)
    joined[where, indices % given.pieces] = values.reshape(-1, given.row)
    return rows, joined.reshape(len(rows), given.width)
