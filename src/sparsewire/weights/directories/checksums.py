"""Checksums of a tensor's new state, by the names that an index gives them."""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any, Protocol

from sparsewire.errors import DataError
from sparsewire.weights.versions.tensors import Bytes

DIGITS = {"xxh3-128": 32, "adler32": 8, "blake3": 64}
"""How many hexadecimal digits each has."""


class Checksum(Protocol):
    """Grows by the bytes that `update` takes."""

    def update(self, data: Any, /) -> Any: ...
    def hexdigest(self) -> str: ...


class _Adler32:
    def __init__(self) -> None:
        self._value = 1

    def update(self, data: Bytes, /) -> None:
        self._value = zlib.adler32(data.data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def checksum(name: str) -> Checksum:
    """A checksum of no bytes yet; raises DataError where the package for it is missing."""
    if name == "adler32":
        return _Adler32()
    if name == "xxh3-128":
        from xxhash import xxh3_128

        return xxh3_128()
    return _blake3()


def checksum_of(name: str, data: Bytes) -> str:
    """The hexadecimal digits for these bytes; raises DataError as `checksum` does."""
    grown = checksum(name)
    grown.update(data)
    return grown.hexdigest()


def _blake3() -> Checksum:
    try:
        made: Checksum = import_module("blake3").blake3()
    except ModuleNotFoundError:
        raise DataError("checksums of blake3 need a package: pip install blake3") from None
    return made
