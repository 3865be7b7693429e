"""A delta between two versions as one file: a document of what it holds, and the codes.

    magic | version of the format | size of the document, 64 bits | document | codes | checksum

Integers are little-endian; the document is JSON; the checksum is xxh3-128 of all bytes before.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparsewire.errors import DataError
from sparsewire.weights.atomic import replacing
from sparsewire.weights.coding import CHECKSUM_BYTES, checksum
from sparsewire.weights.safetensors import HEADER_MAX, Header
from sparsewire.weights.tensors import Tensor

_HEAD = struct.Struct("<4sIQ")
_MAGIC, _FORMAT = b"SWWD", 1
_NOTHING = np.empty(0, np.uint8)
# Of all headers and files together, after unpacking.
_UNPACKED_MAX = 2 * HEADER_MAX


class TensorDelta(NamedTuple):
    """One tensor that changed, or is new: then `base` is empty.

    `base` and `fresh` are the checksums of both states; `changed` counts elements.
    """

    base: bytes
    fresh: bytes
    changed: int
    codes: list[bytes]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.codes))


@dataclass
class Delta:
    """What makes one version of another. `headers` are those of the new files, by name.

    `kept` has the checksums of tensors that did not change, `removed` names of those that went,
    `texts` the JSON files of a directory that differ.
    """

    version: str
    base_version: str
    headers: Mapping[str, Header]
    tensors: dict[str, TensorDelta] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of all codes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def write(self, path: Path) -> int:
        """Write the file; returns its size. Raises OSError."""
        document = json.dumps(self._document(), separators=(",", ":")).encode()
        parts = [_HEAD.pack(_MAGIC, _FORMAT, len(document)), document]
        for tensor in self.tensors.values():
            parts += tensor.codes
        whole = b"".join(parts)
        with replacing(path) as folder:
            made = folder / path.name
            with made.open("wb") as file:
                file.write(whole)
                file.write(checksum(whole))
            made.replace(path)
        return len(whole) + CHECKSUM_BYTES

    def _document(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "base_version": self.base_version,
            "headers": {name: _packed(header.raw) for name, header in self.headers.items()},
            "tensors": [
                {
                    "name": name,
                    "base": each.base.hex(),
                    "fresh": each.fresh.hex(),
                    "changed": each.changed,
                    "codes": list(map(len, each.codes)),
                }
                for name, each in self.tensors.items()
            ],
            "kept": {name: sum_.hex() for name, sum_ in self.kept.items()},
            "removed": self.removed,
            "texts": {name: _packed(text) for name, text in self.texts.items()},
        }

    @classmethod
    def read(cls, path: Path) -> Delta:
        """Read the file; raises DataError for what is no delta, or damaged, and OSError."""
        whole = path.read_bytes()
        if len(whole) < _HEAD.size + CHECKSUM_BYTES or whole[:4] != _MAGIC:
            raise DataError(f"{path} is no delta of weights")
        _, version, size = _HEAD.unpack_from(whole)
        if version != _FORMAT:
            raise DataError(f"{path} has format {version}, and this version reads {_FORMAT}")
        body = memoryview(whole)[:-CHECKSUM_BYTES]
        if checksum(body) != whole[-CHECKSUM_BYTES:] or size > len(body) - _HEAD.size:
            raise DataError(f"{path} is damaged: its checksum does not fit")
        try:
            document = json.loads(bytes(body[_HEAD.size : _HEAD.size + size]))
            return _delta_of(document, body[_HEAD.size + size :], str(path))
        except (ArithmeticError, LookupError, *_MALFORMED) as error:
            raise DataError(f"{path} holds no delta: {error}") from None


_MALFORMED = (ValueError, TypeError, AttributeError, RecursionError)


def _delta_of(document: dict[str, Any], codes: memoryview, source: str) -> Delta:
    """Raises ValueError and its like, and DataError."""
    unpack = Unpacker()
    headers = {
        _file_name(name): Header.parse(unpack(text), f"{source}: {name}")
        for name, text in document["headers"].items()
    }
    delta = Delta(str(document["version"]), str(document["base_version"]), headers)
    begin = 0
    for entry in document["tensors"]:
        own: list[bytes] = []
        for size in entry["codes"]:
            if not 0 <= size <= len(codes) - begin:
                raise ValueError("codes end early")
            own.append(bytes(codes[begin : begin + size]))
            begin += size
        sums = bytes.fromhex(entry["base"]), bytes.fromhex(entry["fresh"])
        delta.tensors[str(entry["name"])] = TensorDelta(*sums, int(entry["changed"]), own)
    if begin != len(codes):
        raise ValueError("there are bytes behind the last code")
    delta.kept = {str(name): bytes.fromhex(text) for name, text in document["kept"].items()}
    delta.removed = [str(name) for name in document["removed"]]
    delta.texts = {_file_name(name): unpack(text) for name, text in document["texts"].items()}
    _check(delta, len(document["tensors"]))
    return delta


def _check(delta: Delta, listed: int) -> None:
    """Raise ValueError where the parts of a delta disagree."""
    if not (delta.version + delta.base_version).isprintable():
        raise ValueError("a version's name is not printable")
    if delta.texts.keys() & delta.headers.keys():
        raise ValueError("a file is there twice")
    tensors: dict[str, Tensor] = {}
    for header in delta.headers.values():
        for name, span in header.spans.items():
            if name in tensors:
                raise ValueError(f"{name!r} is in two files")
            tensors[name] = Tensor(span.dtype, span.shape, _NOTHING)
    told = [*delta.tensors, *delta.kept]
    if set(told) != set(tensors) or len(delta.tensors) != listed or len(told) != len(tensors):
        raise ValueError("its files and its tensors do not fit")
    for name, each in delta.tensors.items():
        tensor = tensors[name]
        if len(each.codes) != tensor.chunk_count or not 0 <= each.changed <= tensor.elements:
            raise ValueError(f"{name!r} does not fit its shape")
    sums = [s for each in delta.tensors.values() for s in (each.base or each.fresh, each.fresh)]
    if any(len(each) != CHECKSUM_BYTES for each in (*sums, *delta.kept.values())):
        raise ValueError("a checksum is none")


def _file_name(name: str) -> str:
    """The name itself; raises ValueError for one that leads out of the directory."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file")
    return name


class Unpacker:
    """Unpacks what `_packed` has made, and bounds how much that is together."""

    def __init__(self) -> None:
        self._left = _UNPACKED_MAX

    def __call__(self, text: str) -> bytes:
        """Raises ValueError for what `_packed` has not made."""
        unpacker = zlib.decompressobj()
        try:
            raw = unpacker.decompress(base64.b64decode(text, validate=True), self._left + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        self._left -= len(raw)
        if not unpacker.eof or unpacker.unused_data or self._left < 0:
            raise ValueError("a packed file is cut off, or too long")
        return raw


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()
