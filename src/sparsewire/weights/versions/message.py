"""A message: what makes one version of weights of another, or of nothing, as one run of bytes.

    magic | version of the format, 32 bits | codes | document | size of the document, 64 bits | sum

Integers are little-endian. The document is JSON, packed by zlib. The sum is xxh3-128 of all bytes
before. Codes come first, so a message is written while tensors are compared, and none is kept.
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import DataError
from sparsewire.weights.versions.coding import (
    CHECKSUM_BYTES,
    Coded,
    checksum,
    checksum_from,
    checksum_of_pieces,
)
from sparsewire.weights.versions.names import file_name, shown
from sparsewire.weights.versions.safetensors import HEADER_MAX, Header, Span
from sparsewire.weights.versions.tensors import coded_elements

_HEAD = struct.Struct("<4sI")
_SIZE = struct.Struct("<Q")
_TAIL_BYTES = _SIZE.size + CHECKSUM_BYTES
_MAGIC, _FORMAT = b"SWWD", 2
# Of all headers and files together, after unpacking.
_DOCUMENT_MAX = 2 * HEADER_MAX


class OtherFormat(DataError):
    """A message that another version of sparsewire wrote, and that is whole."""


class TensorDelta(NamedTuple):
    """One tensor that changed, or is new: the checksum of its new state, its changed elements, the
    sizes of its chunks' codes, and these codes behind each other. New ones are over zeros."""

    fresh: bytes
    changed: int
    is_new: bool
    sizes: tuple[int, ...]
    memory: memoryview

    @property
    def nbytes(self) -> int:
        return len(self.memory)

    def codes(self) -> Iterator[memoryview]:
        """The code of each chunk, as a view of the message."""
        begin = 0
        for size in self.sizes:
            yield self.memory[begin : begin + size]
            begin += size


@dataclass
class Delta:
    """What makes one version of another: `base` and `fresh` are the fingerprints of both.

    An anchor makes a version of nothing: its `base` is empty. `headers` are those of the version's
    files, by name. `tensors` has what changed or is new, `removed` names of those that went. An
    alias is a second name of a tensor. `texts` has the JSON files of a directory that differ.
    """

    version: str
    base_version: str
    headers: Mapping[str, Header]
    base: bytes = b""
    fresh: bytes = b""
    removed: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    tensors: dict[str, TensorDelta] = field(default_factory=dict)
    memory: memoryview = field(default_factory=lambda: memoryview(b""))

    @property
    def checksum(self) -> bytes:
        """Of the message's bytes, if it was read."""
        return bytes(self.memory[-CHECKSUM_BYTES:])

    @property
    def nbytes(self) -> int:
        """Bytes of all codes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def spans(self) -> dict[str, Span]:
        """Every tensor of the new version, by name."""
        return {name: span for each in self.headers.values() for name, span in each.spans.items()}


def tensor_changes(name: str, deltas: Sequence[Delta]) -> list[TensorDelta]:
    """What changes a tensor, from the message on in which it is new."""
    found: list[TensorDelta] = []
    for delta in deltas:
        if change := delta.tensors.get(name):
            found = [change] if change.is_new else [*found, change]
    return found


class Writer:
    """Writes a message to a file that begins empty, code by code."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = checksum_of_pieces()
        self._entries: list[list[Any]] = []
        self.size = 0
        self._put(_HEAD.pack(_MAGIC, _FORMAT))

    def add(
        self, name: str, codes: Iterable[Coded], fresh: Callable[[], bytes], *, is_new: bool
    ) -> int:
        """Write a tensor's codes, unless it is the same as before; returns its changed elements.

        `fresh` gives its new checksum, and is asked for only if it is written.
        """
        sizes, changed, same = [], 0, []
        for code, count in codes:
            # Codes of chunks that did not change wait: perhaps none of the tensor's chunks did.
            if changed + count == 0 and not is_new:
                same.append(code)
                continue
            for each in (*same, code):
                sizes.append(len(each))
                self._put(each)
            same.clear()
            changed += count
        if changed or is_new:
            sizes += [len(each) for each in same]
            self._put(b"".join(same))
            self._entries.append([name, fresh().hex(), changed, is_new, sizes])
        return changed

    def finish(self, delta: Delta) -> bytes:
        """Write the rest: all that `delta` says beside tensors. Returns the message's checksum."""
        text = json.dumps(_document(delta, self._entries), separators=(",", ":"))
        packed = zlib.compress(text.encode(), 6)
        self._put(packed)
        self._put(_SIZE.pack(len(packed)))
        whole = bytes(self._sum.digest())
        self._file.write(whole)
        self._file.flush()
        self.size += len(whole)
        return whole

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._sum.update(data)
        self.size += len(data)


def _document(delta: Delta, entries: list[list[Any]]) -> dict[str, Any]:
    return {
        "version": delta.version,
        "base_version": delta.base_version,
        "base": delta.base.hex(),
        "fresh": delta.fresh.hex(),
        "headers": {name: _text(header.raw[8:]) for name, header in delta.headers.items()},
        "tensors": entries,
        "removed": delta.removed,
        "aliases": delta.aliases,
        "texts": {name: _text(text) for name, text in delta.texts.items()},
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def read(path: Path) -> Delta:
    """Read the message in this file, in place; raises DataError for what is none, and OSError."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise DataError(f"{shown(path)} is empty: it is no message of weights")
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return parse(memoryview(memory), str(path))


def parse(whole: memoryview, source: str) -> Delta:
    """Read a message, of which codes stay views; raises DataError that names `source`."""
    if len(whole) < _HEAD.size + _TAIL_BYTES or whole[:4] != _MAGIC:
        raise DataError(f"{source} is no delta of weights")
    _, form = _HEAD.unpack_from(whole)
    is_sound = checksum(whole[:-CHECKSUM_BYTES]) == whole[-CHECKSUM_BYTES:]
    if is_sound and form != _FORMAT:
        raise OtherFormat(
            f"{source} has format {form}, and this version of sparsewire reads {_FORMAT}: use the "
            "version that wrote it"
        )
    size = _SIZE.unpack_from(whole, len(whole) - _TAIL_BYTES)[0]
    body = whole[_HEAD.size : -_TAIL_BYTES]
    if not is_sound or size > len(body):
        raise DataError(f"{source} is damaged: its checksum does not fit")
    try:
        document = json.loads(_unpacked(body[len(body) - size :]))
        delta = _delta_of(document, body[: len(body) - size], source)
    except (ArithmeticError, LookupError, *_MALFORMED) as error:
        raise DataError(f"{source} holds no delta: {error}") from None
    delta.memory = whole
    return delta


_MALFORMED = (ValueError, TypeError, AttributeError, RecursionError)


def _unpacked(packed: memoryview) -> str:
    """Raises ValueError for what was not packed here, or is too long."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(packed, _DOCUMENT_MAX + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof or unpacker.unused_data or len(raw) > _DOCUMENT_MAX:
        raise ValueError("its document is cut off, or too long")
    return raw.decode()


def _delta_of(document: dict[str, Any], codes: memoryview, source: str) -> Delta:
    """Raises ValueError and its like, and DataError."""
    headers = {
        file_name(name): _header(text, f"{source}: {name}")
        for name, text in document["headers"].items()
    }
    delta = Delta(
        str(document["version"]),
        str(document["base_version"]),
        headers,
        checksum_from(document["base"]) if document["base"] else b"",
        checksum_from(document["fresh"]),
        [str(name) for name in document["removed"]],
        {str(alias): str(name) for alias, name in document["aliases"].items()},
        {_text_name(name): _raw(text) for name, text in document["texts"].items()},
    )
    delta.tensors = _tensors(document["tensors"], codes)
    _check(delta, len(document["tensors"]))
    return delta


def _text_name(name: object) -> str:
    """Raises ValueError for what is not the name of a JSON file."""
    found = file_name(name)
    if not found.endswith(".json"):
        raise ValueError(f"{name!r} is no JSON file")
    return found


def _header(text: str, source: str) -> Header:
    raw = _raw(text)
    return Header.parse(len(raw).to_bytes(8, "little") + raw, source)


def _tensors(entries: list[list[Any]], codes: memoryview) -> dict[str, TensorDelta]:
    tensors: dict[str, TensorDelta] = {}
    begin = 0
    for name, fresh, changed, is_new, sizes in entries:
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ValueError("a code has no size")
        end = begin + sum(sizes)
        if end > len(codes):
            raise ValueError("codes end early")
        own = codes[begin:end]
        tensors[str(name)] = TensorDelta(
            checksum_from(fresh), int(changed), bool(is_new), tuple(sizes), own
        )
        begin = end
    if begin != len(codes):
        raise ValueError("there are bytes behind the last code")
    return tensors


def _check(delta: Delta, listed: int) -> None:
    """Raise ValueError where the parts of a delta disagree."""
    if not (delta.version + delta.base_version).isprintable():
        raise ValueError("a version's name is not printable")
    if delta.texts.keys() & delta.headers.keys():
        raise ValueError("a file is there twice")
    spans = delta.spans()
    if sum(len(header.spans) for header in delta.headers.values()) != len(spans):
        raise ValueError("a tensor is in two files")
    if len(delta.tensors) != listed or not delta.tensors.keys() <= spans.keys():
        raise ValueError("its files and its tensors do not fit")
    if not delta.base and sum(each.is_new for each in delta.tensors.values()) != len(spans):
        raise ValueError("a version without a base lacks tensors")
    if not set(delta.aliases.values()) <= spans.keys() or delta.aliases.keys() & spans.keys():
        raise ValueError("an alias has no tensor, or is one")
    for name, each in delta.tensors.items():
        elements = coded_elements(spans[name].dtype, spans[name].shape)
        if len(each.sizes) != -(-elements // DELTA_CHUNK) or not 0 <= each.changed <= elements:
            raise ValueError(f"{name!r} does not fit its shape")
