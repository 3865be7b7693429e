"""The index of a directory that stores a version's changes: which version, of which, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sparsewire.errors import DataError
from sparsewire.weights.directories.changes import Encoding
from sparsewire.weights.directories.checksums import DIGITS
from sparsewire.weights.versions.names import file_name, shown
from sparsewire.weights.versions.safetensors import HEADER_MAX

NAME = "model.safetensors.index.json"
_ENCODING, _COMPRESSION = "delta_encoding", "zstd"
_LENGTH_MAX = 200
_MALFORMED = (ValueError, TypeError, AttributeError, RecursionError)


class Index(NamedTuple):
    """`weight_map` has the file of each tensor that changed, by the tensor's name."""

    version: str
    base_version: str
    encoding: Encoding
    checksum_format: str
    weight_map: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Index:
        """Read it; raises DataError for what tells of no changes, or of unknown ones; OSError."""
        fields = _fields(folder)
        try:
            told = fields["metadata"]
            _check(told)
            weight_map = {name: file_name(file) for name, file in fields["weight_map"].items()}
            versions = version(told["version"]), version(told["base_version"])
            encoding = Encoding(told[_ENCODING])
            return cls(*versions, encoding, told["checksum_format"], weight_map)
        except KeyError as error:
            raise DataError(f"{_place(folder)} tells of no changes: {error} is missing") from None
        except _MALFORMED as error:
            raise DataError(f"{_place(folder)} tells of no changes: {error}") from None

    def write(self, folder: Path) -> None:
        told = {
            "version": self.version,
            "base_version": self.base_version,
            _ENCODING: self.encoding.value,
            "compression_format": _COMPRESSION,
            "checksum_format": self.checksum_format,
        }
        text = json.dumps({"metadata": told, "weight_map": dict(self.weight_map)}, indent=1)
        (folder / NAME).write_text(text)


def tells_of_changes(folder: Path) -> bool:
    """Whether there is an index there that tells of changes. Raises DataError and OSError."""
    return (folder / NAME).is_file() and _ENCODING in _metadata(folder)


def version_in(folder: Path) -> str | None:
    """The version that the index of a directory names, if it does. Raises DataError and OSError."""
    told = _metadata(folder).get("version") if (folder / NAME).is_file() else None
    return None if told is None else version(told)


def is_same(version: str, other: str) -> bool:
    """Whether both name the same version: numbers may begin with zeros."""
    return plain(version) == plain(other)


def plain(version: str) -> str:
    """The version without what makes no difference."""
    return version.lstrip("0") or "0" if version.isdecimal() and version.isascii() else version


def version(told: Any) -> str:
    """Raises DataError for what names no version."""
    if isinstance(told, int) and not isinstance(told, bool):
        told = str(told)
    if not isinstance(told, str) or not told.isprintable() or not 0 < len(told) <= _LENGTH_MAX:
        raise DataError(f"{told!r:.100} names no version: a short line does, or a number")
    return told


def _check(told: Any) -> None:
    """Raise ValueError for formats that are not known."""
    if told["compression_format"] != _COMPRESSION:
        raise ValueError(f"compression_format {told['compression_format']!r} is not {_COMPRESSION}")
    if told["checksum_format"] not in DIGITS:
        known = ", ".join(DIGITS)
        raise ValueError(f"checksum_format {told['checksum_format']!r} is none of {known}")


def _metadata(folder: Path) -> Mapping[str, Any]:
    told = _fields(folder).get("metadata")
    return told if isinstance(told, dict) else {}


def _fields(folder: Path) -> Mapping[str, Any]:
    """The JSON object of the index, which is bounded."""
    with (folder / NAME).open("rb") as file:
        text = file.read(HEADER_MAX + 1)
    if len(text) > HEADER_MAX:
        raise DataError(f"{_place(folder)} is longer than {HEADER_MAX:,} bytes")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{_place(folder)} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise DataError(f"{_place(folder)} is no JSON object")
    return fields


def _place(folder: Path) -> str:
    return shown(folder / NAME)
