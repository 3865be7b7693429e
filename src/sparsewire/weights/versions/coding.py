"""Codes tensors chunk by chunk, on all processors at once: the native code needs no GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import InputError, ProtocolError
from sparsewire.weights.versions.chunks import apply_chunk, encode_chunk
from sparsewire.weights.versions.tensors import Bytes, Format, Tensor

CHECKSUM_BYTES = 16

T = TypeVar("T")
R = TypeVar("R")


def checksum(data: Bytes | bytes | memoryview) -> bytes:
    """xxh3-128 of the bytes."""
    from xxhash import xxh3_128_digest  # Only here: the rest of the library needs none.

    return bytes(xxh3_128_digest(data.data if isinstance(data, np.ndarray) else data))


def checksum_from(text: str) -> bytes:
    """The checksum that is written in hexadecimal digits; raises ValueError for what is none."""
    raw = bytes.fromhex(text)
    if len(raw) != CHECKSUM_BYTES:
        raise ValueError(f"{text!r:.40} is no checksum")
    return raw


def checksum_of_pieces() -> Any:
    """A checksum that grows: `update` takes bytes, `digest` gives it."""
    from xxhash import xxh3_128

    return xxh3_128()


class Coded(NamedTuple):
    """The code of one chunk over its base, and how many elements changed."""

    code: bytes
    changed: int


class Coder:
    """Threads that encode and apply chunks. Close it, or use it in a `with`."""

    def __init__(self, threads: int | None = None) -> None:
        """`threads` are as many as there are processors by default. Raises InputError."""
        if threads is not None and (type(threads) is not int or threads < 1):
            raise InputError(f"threads={threads!r:.40} is no positive number of threads")
        self._count = threads or len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(self._count, "weights")
        self._is_open = True

    def __enter__(self) -> Coder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._is_open = False
        self._threads.shutdown()

    def check_open(self) -> None:
        """Raise InputError if its receiver was closed."""
        if not self._is_open:
            raise InputError("the receiver is closed: make a new one, and stage the version again")

    def encode(self, base: Tensor | None, fresh: Tensor) -> Iterator[Coded]:
        """The codes of `fresh` over `base`, which has the same dtype and shape; None: over zeros.

        Few are made ahead of the caller, so memory is bounded.
        """
        bases = base.chunks() if base else _zeros(fresh)
        chunks = zip(bases, fresh.chunks(), *_told(fresh.format), strict=False)
        return self.ahead(lambda chunk: Coded(*encode_chunk(*chunk)), chunks)

    def apply(self, codes: Iterable[bytes | memoryview], tensor: Tensor) -> None:
        """Make the base in `tensor` the new version, in place.

        Raises ProtocolError for what is no code of it; chunks before may have changed then.
        """
        chunks = zip(codes, tensor.chunks(), *_told(tensor.format), strict=False)
        applied = list(self.ahead(lambda chunk: apply_chunk(*chunk), chunks))
        if len(applied) != tensor.chunk_count:
            raise ProtocolError("there is not a code for each chunk")
        if not all(applied):
            raise ProtocolError("the code of a chunk is damaged")

    def checksum(self, tensor: Tensor) -> Future[bytes]:
        """The checksum of a tensor, once it is there."""
        return self._threads.submit(checksum, tensor.data)

    def checksums(self, tensors: Iterable[Tensor]) -> Iterator[bytes]:
        """The checksum of each tensor, in order."""
        return self._threads.map(checksum, (tensor.data for tensor in tensors))

    def ahead(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """What `work` makes of each item, in order; twice as many as threads are under way."""
        under_way: deque[Future[R]] = deque()
        for item in items:
            under_way.append(self._threads.submit(work, item))
            if len(under_way) > 2 * self._count:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def _told(form: Format) -> tuple[Iterator[int], Iterator[bool]]:
    return repeat(form.width), repeat(form.floating)


def _zeros(like: Tensor) -> Iterator[Bytes]:
    zeros = np.zeros(min(len(like.data), DELTA_CHUNK * like.format.width), np.uint8)
    return (zeros[: len(chunk)] for chunk in like.chunks())
