"""Versions stored in directories, applied to a model on disk: it appears as a whole, or not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.directories.changes import patch
from sparsewire.weights.directories.checksums import checksum_of
from sparsewire.weights.directories.index import is_same
from sparsewire.weights.directories.mark import mark, version_of
from sparsewire.weights.directories.stored import StoredVersion
from sparsewire.weights.versions.atomic import put, replacing
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import create
from sparsewire.weights.versions.snapshot import Snapshot
from sparsewire.weights.versions.tensors import Bytes

Move = Callable[[int], None]


class _Place(NamedTuple):
    """A tensor of the new version: its name, its old bytes, and memory for the new ones."""

    name: str
    old: Bytes
    new: Bytes


def apply(base: Snapshot, versions: Sequence[Path], target: Path, move: Move) -> str:
    """Write what the directories `versions`, in order, make of `base`; return the new version.

    Each changed tensor is checked in each version, before anything appears at `target`. The new
    model has the files of the base, and a directory says which version it has. `move` is told bytes
    of tensors, in the end all of them. Raises MismatchError for another base, or one that has the
    version already, DataError for what is damaged, and OSError.
    """
    base.check_target(target)
    _check_base(base, StoredVersion(versions[0]))
    with replacing(target) as folder:
        made = folder / "made"
        made.mkdir()
        last = _make(base, versions, made, move)
        if base.is_directory:
            mark(made, last)
        put(made if base.is_directory else next(made.iterdir()), target)
    return last


def _check_base(base: Snapshot, first: StoredVersion) -> None:
    """Raise MismatchError for a base that has this version already, or says it has another."""
    told, index = version_of(base.path), first.index
    if is_same(told, index.version) if told else _has(base, first):
        raise MismatchError(
            f"{shown(base.path)} has version {index.version} already: applied twice, a change may "
            "be taken back"
        )
    _check_step(first, told or index.base_version)


def _has(base: Snapshot, version: StoredVersion) -> bool:
    """Whether all that changes in this version has its new state already."""
    form = version.index.checksum_format
    return bool(version.changes) and all(
        (tensor := base.get(name)) and checksum_of(form, tensor.data) == change.fresh
        for name, change in version.changes.items()
    )


def _check_step(version: StoredVersion, before: str) -> None:
    if not is_same(before, version.index.base_version):
        raise MismatchError(
            f"{shown(version.path)} builds on version {version.index.base_version}, and not on "
            f"{before}. Apply the versions between first, or take a whole one"
        )


def _make(base: Snapshot, versions: Sequence[Path], made: Path, move: Move) -> str:
    """Make all files; gives the last version. One of `versions` is open at a time."""
    places = list(_places(base, made))
    before: str | None = None

    def work(place: _Place) -> None:
        if not before:
            place.new[:] = place.old
        _change(version, place)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "weights") as threads:
        for path in versions:
            version = StoredVersion(path)
            _check_step(version, before or version.index.base_version)
            _check_names(base, version)
            for place, _ in zip(places, threads.map(work, places), strict=True):
                move(len(place.new) if path == versions[-1] else 0)
            before = version.index.version
    assert before
    return before


def _check_names(base: Snapshot, version: StoredVersion) -> None:
    for name in version.changes:
        if not base.get(name):
            raise MismatchError(
                f"{shown(base.path)} is not the base of version {version.index.version}: it has no "
                f"tensor {shown(name)}"
            )


def _places(base: Snapshot, made: Path) -> Iterator[_Place]:
    """Make the files, with no tensors in them yet, and copy the others."""
    for name, file in base.files.items():
        data = create(made / name, file.header)
        for tensor, span in file.header.spans.items():
            yield _Place(tensor, file.tensors[tensor].data, span.of(data).data)
    for other in base.others():
        (shutil.copytree if other.is_dir() else shutil.copy2)(other, made / other.name)


def _change(version: StoredVersion, place: _Place) -> None:
    """Make one tensor the new one. Raises DataError and MismatchError."""
    index, change = version.index, version.changes.get(place.name)
    if not change:
        return
    try:
        patch(index.encoding, change.code, place.new)
    except DataError as error:
        where = f"{shown(version.path)}: the change of {shown(place.name)} does not fit"
        raise DataError(f"{where}: {error}") from None
    if checksum_of(index.checksum_format, place.new) != change.fresh:
        raise MismatchError(
            f"{shown(place.name)} comes out of {shown(version.path)} with another checksum: the "
            f"base is not version {index.base_version}, or the change is damaged. Nothing was "
            "written"
        )
