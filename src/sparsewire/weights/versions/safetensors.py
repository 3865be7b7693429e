"""A file of tensors as the library safetensors writes it, read in place.

That library hands out tensors of frameworks. This reads bytes of every dtype by mmap, and keeps the
header as it is, so that a file can be made again byte for byte. Its format: a length of 64
little-endian bits, a JSON object of that length, and the data.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sparsewire.errors import DataError
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.tensors import Bytes, Tensor, format_of

Mode = Literal["r", "r+", "c"]

_LENGTH_BYTES = 8
# As in the library itself.
HEADER_MAX = 100_000_000
_DIMENSIONS_MAX = 64
_BYTES_MAX = 2**62
METADATA = "__metadata__"


@dataclass(frozen=True)
class Span:
    """A tensor's place in the data: bytes from `begin` to `end`."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def of(self, data: Bytes) -> Tensor:
        return Tensor(self.dtype, self.shape, data[self.begin : self.end])


@dataclass(frozen=True)
class Header:
    """The header of a file. `raw` has all bytes before the data, the length included."""

    raw: bytes
    spans: Mapping[str, Span]

    @property
    def data_bytes(self) -> int:
        return max((span.end for span in self.spans.values()), default=0)

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the file says of itself: texts by name."""
        told = json.loads(self.raw[_LENGTH_BYTES:]).get(METADATA) or {}
        return {str(name): str(text) for name, text in told.items()}

    @classmethod
    def parse(cls, raw: bytes, source: str) -> Header:
        """Read a header; raises DataError that names `source` for what is none."""
        if int.from_bytes(raw[:_LENGTH_BYTES], "little") != len(raw) - _LENGTH_BYTES:
            raise DataError(f"{source} has no header of safetensors: its length does not fit")
        try:
            fields = json.loads(raw[_LENGTH_BYTES:])
            if not isinstance(fields.get(METADATA) or {}, dict):
                raise ValueError(f"{METADATA} is no object")
            spans = {
                name: _span(shown(name), entry)
                for name, entry in fields.items()
                if name != METADATA
            }
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise DataError(f"{source} has no header of safetensors: {error}") from None
        _check_order(spans, source)
        return cls(raw, spans)


def _check_order(spans: Mapping[str, Span], source: str) -> None:
    """Raise DataError where tensors do not lie behind each other."""
    end = 0
    for name, span in sorted(spans.items(), key=lambda each: (each[1].begin, each[1].end)):
        if span.begin != end:
            raise DataError(
                f"{source}: {shown(name)} does not begin where the tensor before it ends"
            )
        end = span.end


def header_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Header:
    """The header of a file that holds these tensors, in this order, and says this of itself."""
    entries: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    spans: dict[str, Span] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        spans[name] = Span(tensor.dtype, tensor.shape, begin, end)
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # So the data is aligned.
    return Header(len(text).to_bytes(_LENGTH_BYTES, "little") + text, spans)


def _span(name: str, entry: Any) -> Span:
    """Raises DataError and ValueError for what is no entry."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} has no dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has a shape or offsets that are no sizes")
    span = Span(entry["dtype"], tuple(shape), *offsets)
    if len(shape) > _DIMENSIONS_MAX or span.end > _BYTES_MAX:
        raise ValueError(f"{name} has too many dimensions or bytes")
    if (span.end - span.begin) * 8 != math.prod(shape) * format_of(name, span.dtype).bits:
        raise ValueError(f"{name} has {span.end - span.begin} bytes, which its shape does not fit")
    return span


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)


def create(path: Path, header: Header) -> Bytes:
    """Make a file with this header; its data, zeros, is memory that is the file. Raises OSError."""
    begin, size = len(header.raw), header.data_bytes
    with path.open("wb") as file:
        file.write(header.raw)
        file.flush()
        if size:
            # A write to mapped memory that finds the disk full would kill the process.
            os.posix_fallocate(file.fileno(), 0, begin + size)
    if not size:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r+", offset=begin, shape=(size,))


class SafetensorsFile:
    """An open file. `tensors` are views of it, by name."""

    def __init__(self, path: Path, mode: Mode = "r") -> None:
        """Map the file to be read ("r"), changed ("r+"), or copied where it is written to ("c").

        Raises DataError for what is none of safetensors, and OSError.
        """
        size = path.stat().st_size
        if size < _LENGTH_BYTES:
            raise DataError(f"{shown(path)} is too short for a file of safetensors")
        memory = np.memmap(path, np.uint8, mode=mode)
        length = int(memory[:_LENGTH_BYTES].view("<u8")[0])
        if length > min(HEADER_MAX, size - _LENGTH_BYTES):
            raise DataError(
                f"{shown(path)} has no header of safetensors: it would have {length} bytes"
            )
        begin = _LENGTH_BYTES + length
        self.header = Header.parse(memory[:begin].tobytes(), shown(path))
        if self.header.data_bytes != size - begin:
            raise DataError(
                f"{shown(path)} has {size - begin} bytes of data, and its header tells of "
                f"{self.header.data_bytes}: it may be cut off"
            )
        data: Bytes = memory[begin:]
        self.tensors = {name: span.of(data) for name, span in self.header.spans.items()}
