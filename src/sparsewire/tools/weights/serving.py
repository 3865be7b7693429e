"""Publishes the versions in a directory: of one that changes, or of one folder for each."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sparsewire.errors import DataError
from sparsewire.weights.publisher import Published, Publisher
from sparsewire.weights.readers.checkout import is_changing

_log = logging.getLogger(__name__)

_LAST_NUMBER = re.compile(r"(\d+)\D*$")

Signature = tuple[tuple[str, int, int], ...]


class Found(NamedTuple):
    """A version on disk; `number` is in its folder's name, or None."""

    path: Path
    number: int | None
    signature: Signature


def versions_in(path: Path) -> list[Found]:
    """The version that `path` is, a file or directory of safetensors, or its folders with some, in
    the order of the last numbers in their names. Raises DataError where there is none."""
    if path.is_file() or any(path.glob("*.safetensors")):
        return [Found(path, None, signature(path))]
    folders = [each for each in path.iterdir() if each.is_dir() and any(each.glob("*.safetensors"))]
    if not folders:
        raise DataError(f"{path} has no file or folder with files that end in .safetensors")
    found = [Found(each, _number(each), signature(each)) for each in folders]
    if any(each.number is None for each in found):
        return sorted((each._replace(number=None) for each in found), key=lambda each: each.path)
    return sorted(found, key=lambda each: (each.number, each.path))


def _number(folder: Path) -> int | None:
    found = _LAST_NUMBER.search(folder.name)
    return int(found[1]) if found else None


def signature(path: Path) -> Signature:
    """What changes when files do: names, sizes, times."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(each.name, each.stat()) for each in files if each.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def serve(
    publisher: Publisher, path: Path, interval: float, ended: threading.Event, *, once: bool = False
) -> Iterator[tuple[Path, Published]]:
    """Publish what is there, and then what comes, each as it is published, until `ended` is set.

    It looks each `interval` seconds. What changed since the look before is left for the next one:
    somebody may still write it. Folders with a number publish as that version, and those that the
    publisher's chain has already are left out. Files that are none are logged, and read again when
    they change. If `once`, it looks one time, and raises DataError for such.
    """
    served: dict[Path, Signature] = {}
    looked: dict[Path, Signature] = {each.path: each.signature for each in versions_in(path)}
    while True:
        for found in _looked(path):
            is_settled = looked.get(found.path) == found.signature
            looked[found.path] = found.signature
            if not is_settled or served.get(found.path) == found.signature:
                continue
            if is_changing(found.path):
                continue  # By a reader: its files are of two versions.
            served[found.path] = found.signature
            if _is_old(found, publisher.version):
                continue
            try:
                published = publisher.publish(found.path, found.number)
            except (DataError, FileNotFoundError) as error:
                if once:
                    raise
                _log.warning("%s is no version yet: %s", found.path, error)
            else:
                yield found.path, published
        if once or ended.wait(interval):
            return


def _looked(path: Path) -> list[Found]:
    try:
        return versions_in(path)
    except (DataError, OSError):
        return []  # Somebody replaces it now.


def _is_old(found: Found, newest: int | None) -> bool:
    return found.number is not None and newest is not None and found.number <= newest
