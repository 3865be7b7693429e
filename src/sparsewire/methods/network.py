"""How the workers of a method exchange their encoded messages: in one process, or over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sparsewire.communicator import Communicator
from sparsewire.sparse_vector import SparseVector


class Network(Protocol):
    """n workers, of which this process plays some. Every process hears all messages."""

    workers: int
    """n, over all processes."""
    local: Sequence[int]
    """The workers that this process plays, ascending."""
    bytes_sent: int
    """Bytes of the local workers' messages so far, without framing."""

    def exchange(self, messages: Sequence[bytes]) -> list[bytes]:
        """Give everybody the messages of all n workers, in their order; collective.

        `messages` are those of the local workers, in order. They may differ in length and be
        empty.
        """


class Simulated:
    """All workers in this process."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"there must be at least one worker, not {workers}")
        self.workers = workers
        self.local: Sequence[int] = range(workers)
        self.bytes_sent = 0

    def exchange(self, messages: Sequence[bytes]) -> list[bytes]:
        _check_count(messages, self.local)
        self.bytes_sent += sum(map(len, messages))
        return list(messages)


class Distributed:
    """One worker per rank of a communicator. Only the encoded messages cross the wire.

    `exchange` raises what the communicator's `all_gather` raises.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self.workers = comm.world_size
        self.local: Sequence[int] = range(comm.rank, comm.rank + 1)
        self.bytes_sent = 0

    def exchange(self, messages: Sequence[bytes]) -> list[bytes]:
        _check_count(messages, self.local)
        (message,) = messages
        self.bytes_sent += len(message)
        vectors = self._comm.all_gather(framed(message))
        return [unframed(vector.indices, vector.values) for vector in vectors]


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


def unframed(indices: npt.NDArray[Any], rows: npt.NDArray[Any]) -> bytes:
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


def _check_count(messages: Sequence[bytes], local: Sequence[int]) -> None:
    if len(messages) != len(local):
        raise ValueError(f"{len(local)} local workers send {len(messages)} messages")
