"""Codes tensors chunk by chunk, on all processors at once: the native code needs no GIL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import NamedTuple

import numpy as np

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import ProtocolError
from sparsewire.weights.chunks import apply_chunk, encode_chunk
from sparsewire.weights.tensors import Bytes, Format, Tensor

CHECKSUM_BYTES = 16


def checksum(data: Bytes | bytes | memoryview) -> bytes:
    """xxh3-128 of the bytes."""
    from xxhash import xxh3_128_digest  # Only here: the rest of the library needs none.

    return bytes(xxh3_128_digest(data.data if isinstance(data, np.ndarray) else data))


class Coded(NamedTuple):
    """A tensor over its base: a code for each chunk, and how many elements changed."""

    codes: list[bytes]
    changed: int


class Coder:
    """Threads that encode and apply chunks. Close it, or use it in a `with`."""

    def __init__(self, threads: int | None = None) -> None:
        """`threads` are as many as there are processors by default."""
        self._threads = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), "weights")

    def __enter__(self) -> Coder:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def encode(self, base: Tensor | None, fresh: Tensor) -> Coded:
        """The code of `fresh` over `base`, which has the same dtype and shape; None: over zeros."""
        bases = base.chunks() if base else _zeros(fresh)
        found = list(self._threads.map(encode_chunk, bases, fresh.chunks(), *_told(fresh.format)))
        return Coded([code for code, _ in found], sum(changed for _, changed in found))

    def apply(self, codes: Sequence[bytes], tensor: Tensor) -> None:
        """Make the base in `tensor` the new version, in place.

        Raises ProtocolError for what is no code of it; chunks before may have changed then.
        """
        if len(codes) != tensor.chunk_count:
            raise ProtocolError("there is not a code for each chunk")
        applied = self._threads.map(apply_chunk, codes, tensor.chunks(), *_told(tensor.format))
        if not all(applied):
            raise ProtocolError("the code of a chunk is damaged")

    def checksums(self, tensors: Iterable[Tensor]) -> Iterator[bytes]:
        """The checksum of each tensor, in order."""
        return self._threads.map(checksum, (tensor.data for tensor in tensors))


def _told(form: Format) -> tuple[Iterator[int], Iterator[bool]]:
    return repeat(form.width), repeat(form.floating)


def _zeros(like: Tensor) -> Iterator[Bytes]:
    zeros = np.zeros(min(len(like.data), DELTA_CHUNK * like.format.width), np.uint8)
    return (zeros[: len(chunk)] for chunk in like.chunks())
