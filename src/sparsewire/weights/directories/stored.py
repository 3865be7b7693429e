"""A directory that stores a version's changes, opened: the index and the codes agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import hexdigits
from typing import NamedTuple

from sparsewire.errors import DataError
from sparsewire.weights.directories.checksums import DIGITS
from sparsewire.weights.directories.index import Index
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import SafetensorsFile
from sparsewire.weights.versions.tensors import Bytes, Tensor


class StoredChange(NamedTuple):
    """The change of one tensor, and the checksum of its new state, in hexadecimal digits."""

    code: Bytes
    fresh: str


class StoredVersion:
    """`changes` has the change of each tensor that is another in this version."""

    def __init__(self, path: Path) -> None:
        """Open `path`; raises DataError for what is no such directory, or not complete; OSError."""
        self.path = path
        self.index = Index.read(path)
        self.changes = dict(self._changes())
        if missing := self.index.weight_map.keys() - self.changes.keys():
            raise DataError(f"{shown(path)} lacks the change of {shown(min(missing))}")

    @property
    def nbytes(self) -> int:
        """Bytes of all codes."""
        return sum(len(each.code) for each in self.changes.values())

    def _changes(self) -> Iterator[tuple[str, StoredChange]]:
        for name in sorted(set(self.index.weight_map.values())):
            place = self.path / name
            if not place.is_file():
                raise DataError(f"{shown(place)} is not there: is the directory complete?")
            file = SafetensorsFile(place)
            sums = file.header.metadata
            for tensor, code in file.tensors.items():
                if self.index.weight_map.get(tensor) != name:
                    raise DataError(f"{shown(place)} has {shown(tensor)}, and the index does not")
                self._check(tensor, code, sums.get(tensor, ""))
                yield tensor, StoredChange(code.data, sums[tensor].lower())

    def _check(self, name: str, code: Tensor, digits: str) -> None:
        form = self.index.checksum_format
        if code.dtype != "U8" or len(code.shape) != 1:
            raise DataError(f"{shown(self.path)}: {shown(name)} is no code of a change")
        if len(digits) != DIGITS[form] or set(digits) - set(hexdigits):
            raise DataError(f"{shown(self.path)}: {shown(name)} has no checksum of {form}")
