"""What a member gives in a round, as rows that the engine's collectives carry: a contribution,
nothing, or word that it failed. Reading is bounded, since the bytes come from outside."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np

from sparsewire.compress.message import framed, unframed
from sparsewire.errors import CompressError
from sparsewire.sparse_vector import SparseVector

ROW = 64
"""Elements of a row, int32."""
ROW_BYTES = 4 * ROW
_LENGTH_BYTES = 8

# No operator's message is longer: Identity has 4 bytes an element, and positions take less than 2.
_BYTES_PER_ELEMENT = 8
_BYTES_BESIDE = 1 << 14


class Kind(Enum):
    """What a parcel holds; nothing is not sent at all."""

    NOTHING = 0
    CONTRIBUTION = 1
    FAILURE = 2


class Parcel(NamedTuple):
    """What one member gives to another."""

    kind: Kind = Kind.NOTHING
    message: bytes = b""


def most_rows(elements: int) -> int:
    """The rows of the longest parcel that is read, where messages are of so many elements."""
    return -(-(_BYTES_PER_ELEMENT * elements + _BYTES_BESIDE) // ROW_BYTES)


def wrap(parcel: Parcel, positions: int) -> SparseVector:
    """The rows of a parcel: int32, shape (n, 64), of a vector of `positions` rows."""
    if parcel.kind is Kind.NOTHING:
        return SparseVector(np.empty(0, np.int64), np.empty((0, ROW), np.int32), positions)
    rows = framed(bytes([parcel.kind.value]) + parcel.message)
    return SparseVector(rows.indices.astype(np.int64), rows.values, positions)


def unwrap(rows: SparseVector, sender: int) -> Parcel:
    """The parcel in what came from rank `sender`; raises CompressError if it is malformed."""
    if rows.nnz == 0:
        return Parcel()
    _check_length(rows, sender)
    message = unframed(rows.indices, rows.values)
    if not message or message[0] not in (Kind.CONTRIBUTION.value, Kind.FAILURE.value):
        raise CompressError(f"malformed message of rank {sender}: it is of no known kind")
    return Parcel(Kind(message[0]), message[1:])


def _check_length(rows: SparseVector, sender: int) -> None:
    """Whether the rows hold the length that they name, so that no memory is found for more."""
    length = int.from_bytes(rows.values[0].tobytes()[:_LENGTH_BYTES], "little")
    count = -(-(_LENGTH_BYTES + length) // ROW_BYTES)
    if rows.indices[0] != 0 or count > rows.length or rows.indices[-1] >= count:
        raise CompressError(
            f"malformed message of rank {sender}: {rows.nnz} rows do not hold {length} bytes"
        )
