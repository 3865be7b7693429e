"""Traces: files with the masks of gradients, one a rank. docs/profile.md has the format."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparsewire.errors import InputError
from sparsewire.fields import FieldError, read_fields

MAGIC = b"swtrace\x01"
_LENGTHS = struct.Struct("<II")

# Higher levels take many times as long for a few per cent.
_LEVEL = 1

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Head:
    """The head of a mask: its step and bucket, the numbers of its parameters, and its dtype."""

    step: int
    bucket: int
    parameters: list[int]
    elements: int
    dtype: str


@dataclass(frozen=True)
class Traced:
    """One mask, still compressed."""

    head: Head
    body: bytes

    def mask(self) -> Mask:
        """Marks of non-zero elements, bool, shape (elements,); raises InputError if damaged."""
        size = -(-self.head.elements // 8)
        try:
            packed = zlib.decompressobj().decompress(self.body, size + 1)
        except zlib.error as error:
            raise InputError(f"a mask of the trace is damaged: {error}") from None
        if len(packed) != size:
            raise InputError(f"a mask of the trace has not {self.head.elements} elements")
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
        return bits[: self.head.elements].astype(np.bool_)


def path_of(directory: Path | str, rank: int) -> Path:
    """The trace of a rank."""
    return Path(directory) / f"rank-{rank}.trace"


def pack(head: Head, mask: Mask) -> bytes:
    """A record of the file."""
    told = json.dumps(asdict(head)).encode()
    body = zlib.compress(np.packbits(mask, bitorder="little").tobytes(), _LEVEL)
    return _LENGTHS.pack(len(told), len(body)) + told + body


def append(path: Path, records: list[bytes]) -> None:
    """Add records to a file, which is made if it is not there."""
    with path.open("ab") as file:
        if file.tell() == 0:
            file.write(MAGIC)
        file.write(b"".join(records))


def read(path: Path) -> list[Traced]:
    """All masks of a file in their order; raises InputError where it is none, or cut off."""
    try:
        return list(_records(path, path.read_bytes()))
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror}): record with `sparsewire profile --trace`"
        ) from None


def _records(path: Path, data: bytes) -> Iterator[Traced]:
    if not data.startswith(MAGIC):
        raise InputError(f"{path} is no trace of this version")
    at = len(MAGIC)
    while at < len(data):
        try:
            head_bytes, body_bytes = _LENGTHS.unpack_from(data, at)
            begin = at + _LENGTHS.size
            end = begin + head_bytes + body_bytes
            told = data[begin : begin + head_bytes]
            head = read_fields(Head, json.loads(told))
        except (struct.error, ValueError, RecursionError, FieldError) as error:
            raise InputError(f"{path} is damaged at byte {at}: {error}") from None
        if end > len(data):
            raise InputError(f"{path} is cut off at byte {at}: record again")
        yield Traced(head, data[begin + head_bytes : end])
        at = end
