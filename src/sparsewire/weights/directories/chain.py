"""Directories of versions in one folder, in the order in which they build on each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.directories.index import Index, plain, tells_of_changes
from sparsewire.weights.versions.names import shown

_Versions = Mapping[str, tuple[Path, Index]]


def versions_in(folder: Path) -> list[Path]:
    """The directories in `folder` that store a version's changes, by name.

    Raises DataError and OSError.
    """
    entries = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    return [each for each in entries if each.is_dir() and tells_of_changes(each)]


def chain(folder: Path, base_version: str | None) -> list[Path]:
    """What takes a base to the newest version in `folder`, in order.

    `base_version` is the version that the base has; None: it has the one that the first version in
    the folder builds on. Raises DataError for versions that are no chain, MismatchError where none
    builds on the base, and OSError.
    """
    by_base = _by_base(folder)
    start = _first(by_base, folder) if base_version is None else plain(base_version)
    found = list(_followed(by_base, start))
    if not found:
        raise MismatchError(
            f"no version in {shown(folder)} builds on version {base_version}, which the base has"
        )
    _check_end(by_base, found[-1][1], folder)
    return [path for path, _ in found]


def _by_base(folder: Path) -> _Versions:
    found: dict[str, tuple[Path, Index]] = {}
    for path in versions_in(folder):
        index = Index.read(path)
        other = found.setdefault(plain(index.base_version), (path, index))[0]
        if other != path:
            raise DataError(f"{shown(other)} and {shown(path)} build on the same version")
    if not found:
        raise DataError(f"{shown(folder)} stores no version's changes")
    return found


def _first(by_base: _Versions, folder: Path) -> str:
    """The version that the first version in the folder builds on."""
    made = {plain(index.version) for _, index in by_base.values()}
    firsts = sorted(by_base.keys() - made)
    if len(firsts) != 1:
        missing = f"versions {', '.join(firsts)} are" if firsts else "no version is"
        raise DataError(
            f"the versions in {shown(folder)} are no chain: {missing} built on and not there"
        )
    return firsts[0]


def _followed(by_base: _Versions, start: str) -> Iterator[tuple[Path, Index]]:
    left = dict(by_base)
    while start in left:
        path, index = left.pop(start)
        yield path, index
        start = plain(index.version)


def _check_end(by_base: _Versions, last: Index, folder: Path) -> None:
    """Raise DataError where a version with a higher number does not build on what is there."""
    if not plain(last.version).isdecimal():
        return
    made = [plain(index.version) for _, index in by_base.values()]
    newest = max(int(version) for version in made if version.isdecimal())
    if newest > int(last.version):
        raise DataError(
            f"{shown(folder)} has version {newest}, and a version between {last.version} and it "
            "is missing"
        )
