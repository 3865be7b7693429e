"""A directory that stores what changed from one version to the next, written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sparsewire.errors import DataError
from sparsewire.weights.directories.changes import Change, Encoding, encode
from sparsewire.weights.directories.checksums import checksum_of
from sparsewire.weights.directories.index import Index
from sparsewire.weights.versions.atomic import put, replacing
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import header_of
from sparsewire.weights.versions.snapshot import Snapshot, check_absent
from sparsewire.weights.versions.tensors import Tensor

_FILE = "model-00000-of-00001.safetensors"


class Dialect(str, Enum):
    """Whose readers shall take the directory."""

    SLIME = "slime"
    MODELEXPRESS = "modelexpress"

    @property
    def checksum_format(self) -> str:
        return "adler32" if self is Dialect.MODELEXPRESS else "xxh3-128"

    def named(self, version: str) -> str:
        """The version as this dialect writes it; raises DataError for one that it cannot."""
        if self is Dialect.MODELEXPRESS:
            return version
        if not (version.isdecimal() and version.isascii()):
            raise DataError(f"version {version!r} is no number: {self.value} counts versions")
        return f"{int(version):06}"


class Written(NamedTuple):
    """What was written: tensors and bytes of them that changed, and bytes of all codes."""

    tensors: int
    changed: int
    nbytes: int


class _Coded(NamedTuple):
    name: str
    change: Change
    fresh: str


def write(
    old: Snapshot,
    new: Snapshot,
    target: Path,
    versions: tuple[str, str],
    *,
    dialect: Dialect,
    encoding: Encoding = Encoding.XOR,
    move: Callable[[int], None] = lambda nbytes: None,
) -> Written:
    """Write what changed from `old` to `new` to the directory `target`, which is not there yet.

    `versions` are the names of the new version, and of the old one. `move` is told the bytes of
    each tensor that is done. Raises DataError for what the format has no place for: tensors that
    come, go, or get another dtype or shape; and OSError.
    """
    check_absent(target)
    if dialect is Dialect.MODELEXPRESS and encoding is not Encoding.XOR:
        raise DataError("ModelExpress takes changes in the encoding xor only")
    _check_alike(old, new)
    coded = _coded(old, new, encoding, dialect.checksum_format, move)
    version, base = map(dialect.named, versions)
    weight_map = {each.name: _FILE for each in coded}
    index = Index(version, base, encoding, dialect.checksum_format, weight_map)
    _store(index, coded, target)
    changes = [each.change for each in coded]
    nbytes = sum(len(each.code) for each in changes)
    return Written(len(changes), sum(each.changed for each in changes), nbytes)


def _check_alike(old: Snapshot, new: Snapshot) -> None:
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        if not before or not after or before[:2] != after[:2]:
            raise DataError(
                f"{shown(name)} is {_described(before)} in the old version, and "
                f"{_described(after)} in the new one, which this format has no place for: use "
                "sparsewire's own, or store the new version whole"
            )


def _described(tensor: Tensor | None) -> str:
    return f"{tensor.dtype} of shape {list(tensor.shape)}" if tensor else "not there"


def _coded(
    old: Snapshot, new: Snapshot, encoding: Encoding, form: str, move: Callable[[int], None]
) -> list[_Coded]:
    """The changes of all tensors that have one."""

    def code(pair: tuple[str, Tensor, Tensor]) -> _Coded | None:
        name, before, after = pair
        change = encode(encoding, before.data, after.data)
        return _Coded(name, change, checksum_of(form, after.data)) if change.changed else None

    found: list[_Coded] = []
    pairs = list(_pairs(old, new))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "weights") as threads:
        for pair, coded in zip(pairs, threads.map(code, pairs), strict=True):
            found += [coded] if coded else []
            move(len(pair[2].data))
    return found


def _pairs(old: Snapshot, new: Snapshot) -> Iterable[tuple[str, Tensor, Tensor]]:
    for name in new:
        before, after = old.get(name), new.get(name)
        assert before
        assert after
        yield name, before, after


def _store(index: Index, coded: list[_Coded], target: Path) -> None:
    with replacing(target) as folder:
        made = folder / "made"
        made.mkdir()
        if coded:
            _write_codes(made / _FILE, coded)
        index.write(made)
        put(made, target)


def _write_codes(path: Path, coded: list[_Coded]) -> None:
    sums: Mapping[str, str] = {each.name: each.fresh for each in coded}
    codes = {
        each.name: Tensor("U8", (len(code),), code)
        for each in coded
        if len(code := np.frombuffer(each.change.code, np.uint8))
    }
    with path.open("wb") as file:
        file.write(header_of(codes, sums).raw)
        file.writelines(code.data.data for code in codes.values())
