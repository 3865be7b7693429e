"""The messages of ranks that meet over TCP: records, and rank 0's reason to leave.

Each record travels behind its size and the milliseconds that its sender still waits. A record with
0 milliseconds is rank 0's last word: the name of an error, and its text.
"""

from __future__ import annotations

import json
import struct

from sparsewire.errors import AuthenticationError, Error, MismatchError, ProtocolError, Timeout
from sparsewire.meeting.contact.handshake import Handshake

RECORD_MAX = 64 * 1024
WHY_MAX = 4096

_HEADER = struct.Struct("!II")
_KINDS = {kind.__name__: kind for kind in (AuthenticationError, MismatchError, Timeout)}


def frame(record: bytes, left: float) -> bytes:
    """A record on its way, from a rank that still waits for `left` seconds."""
    return _HEADER.pack(max(1, int(1000 * left)), len(record)) + record


def check_size(record: bytes) -> None:
    if len(record) > RECORD_MAX:
        raise ValueError(f"a record may have {RECORD_MAX} bytes, not {len(record)}")


def next_record(size_max: int = RECORD_MAX) -> Handshake[tuple[float, bytes]]:
    """Reads seconds that the sender still waits, and its record."""
    milliseconds, size = _HEADER.unpack((yield b"", _HEADER.size))
    if size > size_max:
        raise ProtocolError(f"a record of {size} bytes: do all ranks run the same version?")
    return milliseconds / 1000, (yield b"", size)


def last_word(error: Error) -> bytes:
    """The last word of rank 0 before it leaves."""
    word = json.dumps([type(error).__name__, str(error)[:WHY_MAX]]).encode()
    return _HEADER.pack(0, len(word)) + word


def error_of(word: bytes) -> Error:
    """The error in a last word; raises ProtocolError for anything else."""
    try:
        kind, why = json.loads(word)
    except (TypeError, ValueError, RecursionError):
        return ProtocolError("rank 0 left without a reason: do all ranks run the same version?")
    return _KINDS.get(str(kind), Error)(str(why))
