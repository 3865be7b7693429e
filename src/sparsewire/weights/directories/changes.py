"""What changed in the bytes of one tensor: coded, and put into the old bytes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparsewire.errors import DataError
from sparsewire.weights.versions.tensors import Bytes

if TYPE_CHECKING:
    import zstandard

_PIECE = 1 << 20
_LEVEL = 1
_POSITION = np.dtype("<u4")


class Encoding(str, Enum):
    """How a change is written, by the name that an index gives it."""

    XOR = "xor"
    OVERWRITE = "overwrite"


class Change(NamedTuple):
    """A frame of zstd, and how many bytes changed."""

    code: bytes
    changed: int


def encode(encoding: Encoding, base: Bytes, fresh: Bytes) -> Change:
    """The change from `base` to `fresh`, which have the same length.

    Raises DataError for a tensor whose positions have more than 32 bits.
    """
    return _xor(base, fresh) if encoding is Encoding.XOR else _overwrite(base, fresh)


def patch(encoding: Encoding, code: Bytes, target: Bytes) -> None:
    """Put the change into the old bytes, in place.

    No more memory is taken than `target` allows for. Raises DataError for what is no change of so
    many bytes; some may have changed then.
    """
    from zstandard import ZstdDecompressor, ZstdError

    try:
        with ZstdDecompressor().stream_reader(code.data) as reader:
            (_patch_xor if encoding is Encoding.XOR else _patch_overwrite)(reader, target)
            if reader.read(1):
                raise DataError("it is longer than its tensor allows for")
    except ZstdError as error:
        raise DataError(f"it is no frame of zstd: {error}") from None


def _pieces(size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + _PIECE, size)) for begin in range(0, size, _PIECE))


def _xor(base: Bytes, fresh: Bytes) -> Change:
    from zstandard import ZstdCompressor

    writer = ZstdCompressor(level=_LEVEL).compressobj(size=len(fresh))
    code, changed = bytearray(), 0
    for piece in _pieces(len(fresh)):
        difference = base[piece] ^ fresh[piece]
        changed += int(np.count_nonzero(difference))
        code += writer.compress(difference.data)
    return Change(bytes(code + writer.flush()), changed)


def _overwrite(base: Bytes, fresh: Bytes) -> Change:
    from zstandard import ZstdCompressor

    if len(fresh) > np.iinfo(_POSITION).max:
        raise DataError(f"{len(fresh):,} bytes are too many for overwrite: use the encoding xor")
    found = [np.flatnonzero(base[each] != fresh[each]) + each.start for each in _pieces(len(fresh))]
    positions = np.concatenate([np.empty(0, np.intp), *found])
    count = np.array([len(positions)], _POSITION)
    parts = count, positions.astype(_POSITION), fresh[positions]
    plain = b"".join(part.tobytes() for part in parts)
    return Change(ZstdCompressor(level=_LEVEL).compress(plain), len(positions))


def _patch_xor(reader: zstandard.ZstdDecompressionReader, target: Bytes) -> None:
    for piece in _pieces(len(target)):
        part = target[piece]
        np.bitwise_xor(part, _taken(reader, len(part)), out=part)


def _patch_overwrite(reader: zstandard.ZstdDecompressionReader, target: Bytes) -> None:
    count = int(_taken(reader, _POSITION.itemsize).view(_POSITION)[0])
    if count > len(target):
        raise DataError(f"it overwrites {count:,} of {len(target):,} bytes")
    positions = _taken(reader, count * _POSITION.itemsize).view(_POSITION)
    values = _taken(reader, count)
    if count and int(positions.max()) >= len(target):
        raise DataError(f"it overwrites byte {positions.max():,} of {len(target):,}")
    target[positions] = values


def _taken(reader: zstandard.ZstdDecompressionReader, size: int) -> Bytes:
    """The next bytes of the frame; raises DataError where it has less."""
    parts = bytearray()
    while len(parts) < size:
        part = reader.read(min(_PIECE, size - len(parts)))
        if not part:
            raise DataError("it is shorter than its tensor")
        parts += part
    return np.frombuffer(parts, np.uint8)
