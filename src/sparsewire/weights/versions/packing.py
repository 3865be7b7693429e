"""Codes of chunks in which bytes repeat, by zstd: what no code of positions or planes sees.

A code is a byte that tells what is packed, and one frame of zstd: of the new bytes, or of old XOR
new. The bytes are none that a native code begins with.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from sparsewire.weights.versions.tensors import Bytes

# A native code that takes less than this share of its chunk is taken to be short enough.
_TRIED_SHARE = 1 / 20
# Bytes from the middle of a chunk that tell whether packing the whole may pay.
_SAMPLE = 1 << 16
_DOUBT = 0.9
# Patterns of some hundred bytes are found from this level on.
_LEVEL = 3
# As much as the largest chunk has, so that no frame makes the decoder take more.
_WINDOW_MAX = 1 << 23


class Packing(IntEnum):
    """What is packed: the first byte of a code."""

    FRESH = 4
    XOR = 5


def pack(base: Bytes, fresh: Bytes, native: int) -> bytes | None:
    """The code of `fresh` over `base`, both one chunk; None if it is not shorter than `native`.

    `native` is the size of the native code, in bytes.
    """
    if native < _TRIED_SHARE * len(fresh):
        return None
    codes = [
        bytes([packing]) + _compress(_content(packing, base, fresh))
        for packing in Packing
        if _may_pay(packing, base, fresh, native)
    ]
    best = min(codes, key=len, default=None)
    return best if best and len(best) < native else None


def _may_pay(packing: Packing, base: Bytes, fresh: Bytes, native: int) -> bool:
    begin = max(len(fresh) - _SAMPLE, 0) // 2
    piece = slice(begin, begin + _SAMPLE)
    sample = _content(packing, base[piece], fresh[piece])
    return len(_compress(sample)) / len(sample) * len(fresh) < _DOUBT * native


def packing_of(code: bytes | memoryview) -> Packing | None:
    """What is packed; None for a native code."""
    return Packing(code[0]) if code and code[0] in set(Packing) else None


def unpack(code: bytes | memoryview, nbytes: int) -> Bytes | None:
    """The bytes that are packed, in memory that may be written; None if they are not `nbytes`.

    Whatever the code is, it takes no more memory than these bytes and the decoder's window.
    """
    import zstandard

    frame = memoryview(code)[1:]
    try:
        # The decoder takes memory for as much as a frame says that it has.
        if zstandard.get_frame_parameters(frame).content_size != nbytes:
            return None
        decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
        return np.frombuffer(decoder.decompress(frame, allow_extra_data=False), np.uint8)
    except zstandard.ZstdError:
        return None


def _content(packing: Packing, base: Bytes, fresh: Bytes) -> Bytes:
    return fresh if packing is Packing.FRESH else base ^ fresh


def _compress(content: Bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(content.data)
