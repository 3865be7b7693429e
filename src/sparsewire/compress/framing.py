"""Encoded messages as rows of sparse vectors: collectives then carry messages of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.sparse_vector import SparseVector

# Values per row, of 4 bytes. The engine names the rows of a chunk in a bitmap: wider rows make it
# shorter, and the last row emptier. With 64 a frame adds up to 520 bytes, and 1% of long messages.
_ROW = 64
_LENGTH_BYTES = 8
# All ranks must name one length, but their messages differ: it is that of the longest possible.
_POSITIONS = 2**31 - 1


def framed(message: bytes) -> SparseVector:
    """A message as the rows of a sparse vector, so that one index stands for many bytes.

    The first 8 bytes are the message's length, little-endian; zeros fill up the last row.
    """
    size = _LENGTH_BYTES + len(message)
    rows = -(-size // (4 * _ROW))
    values = np.zeros((rows, _ROW), np.int32)
    flat = values.reshape(-1).view(np.uint8)
    flat[:_LENGTH_BYTES] = np.frombuffer(len(message).to_bytes(_LENGTH_BYTES, "little"), np.uint8)
    flat[_LENGTH_BYTES:size] = np.frombuffer(message, np.uint8)
    return SparseVector(np.arange(rows, dtype=np.int32), values, _POSITIONS)


def unframed(indices: NDArray[Any], rows: NDArray[Any]) -> bytes:
    """The message that `framed` turned into `rows`: int32, shape (n, 64), indices ascending.

    Rows of zeros may be missing, because the engine need not send them.
    """
    if not (len(indices) and indices[0] == 0):
        return b""  # The first row has the length, which is zero then.
    length = int.from_bytes(rows[0].tobytes()[:_LENGTH_BYTES], "little")
    count = -(-(_LENGTH_BYTES + length) // (4 * _ROW))
    if len(indices) < count:
        whole = np.zeros((count, _ROW), np.int32)
        whole[indices] = rows
        rows = whole
    return rows.tobytes()[_LENGTH_BYTES : _LENGTH_BYTES + length]
