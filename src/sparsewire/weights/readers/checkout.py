"""A directory that a reader keeps at the newest version: files of safetensors, changed in place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from sparsewire.errors import DataError, InputError
from sparsewire.weights.readers.home import Growing
from sparsewire.weights.versions.atomic import put, replacing
from sparsewire.weights.versions.lock import DirectoryLock
from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import Span, create
from sparsewire.weights.versions.snapshot import CONDITION as MARK
from sparsewire.weights.versions.snapshot import SUFFIX, Snapshot

_INDEX = ".safetensors.index.json"


class Condition(Enum):
    """Of a directory: whether its files are one version."""

    WHOLE = "whole"
    CHANGING = "changing"


class Checkout(Growing):
    """The tensors of all files of a directory, which need not have any yet.

    `sparsewire.json` in it tells the version, and whether the files are whole: while a version is
    applied, or after a process was killed meanwhile, they are not. Then the next version comes
    whole, as the bits are none that the publisher knows.
    """

    def __init__(self, directory: Path) -> None:
        """Open or make the directory.

        Raises DataError for files that are none, InputError for links to files elsewhere, or if
        another process keeps the directory, and OSError.
        """
        self._lock = DirectoryLock(directory, "pulls into")
        self._directory = directory
        _check_links(directory)
        for left in directory.glob(".sparsewire.*"):
            shutil.rmtree(left, ignore_errors=True)
        self._files = Snapshot(directory, "r+") if self._has_files() else None
        super().__init__(self._files.tensors if self._files else {}, str(directory))

    def _has_files(self) -> bool:
        return any(self._directory.glob(f"*{SUFFIX}"))

    def check_files(self, names: Iterable[str]) -> None:
        for name in names:
            if not name.endswith(SUFFIX):
                raise DataError(f"the publisher names a file {shown(name)}, not *{SUFFIX}")

    def close(self) -> None:
        self._lock.close()

    def begin(self) -> None:
        self._mark(Condition.CHANGING, None)

    def finish(self, deltas: Sequence[Delta], version: int) -> None:
        """Make files of the new version where it has other tensors than them; write its texts."""
        if deltas and not self._fits(deltas[-1].spans()):
            self._write(deltas[-1])
        texts = {name: text for delta in deltas for name, text in delta.texts.items()}
        texts.pop(MARK, None)
        for name, text in texts.items():
            with replacing(self._directory / name) as folder:
                (folder / name).write_bytes(text)
                put(folder / name, self._directory / name)
        self._mark(Condition.WHOLE, version)

    def _fits(self, spans: Mapping[str, Span]) -> bool:
        tensors = self._files.tensors if self._files else {}
        return tensors.keys() == spans.keys()

    def _write(self, delta: Delta) -> None:
        """Write all files anew, as their headers say, each as a whole."""
        for name, header in delta.headers.items():
            with replacing(self._directory / name) as folder:
                data = create(folder / name, header)
                for tensor, span in header.spans.items():
                    span.of(data).data[:] = self.tensors[tensor].data
                put(folder / name, self._directory / name)
        for path in self._directory.glob(f"*{SUFFIX}"):
            if path.name not in delta.headers:
                path.unlink()
        for path in self._directory.glob(f"*{_INDEX}"):
            if path.name not in delta.texts:
                path.unlink()
        self._files = Snapshot(self._directory, "r+")
        self.tensors = dict(self._files.tensors)

    def _mark(self, condition: Condition, version: int | None) -> None:
        text = json.dumps({"condition": condition.value, "version": version})
        with replacing(self._directory / MARK) as folder:
            (folder / MARK).write_text(text + "\n")
            put(folder / MARK, self._directory / MARK)


def _check_links(directory: Path) -> None:
    """Raise InputError where a file of tensors is a link: it would change what others have."""
    for path in directory.glob(f"*{SUFFIX}"):
        if path.is_symlink():
            raise InputError(
                f"{shown(path)} is a link to {shown(path.resolve())}, which would change: pull "
                "into a copy of the directory, made by `cp -rL`, or into a new one"
            )


def is_changing(directory: Path) -> bool:
    """Whether a reader is changing the directory's files, or was killed meanwhile."""
    return (directory / MARK).exists() and read_mark(directory) is None


def read_mark(directory: Path) -> int | None:
    """The version that a directory has whole; None where it has none. Raises DataError."""
    path = directory / MARK
    if not path.exists():
        return None
    try:
        mark: Any = json.loads(path.read_text())
        is_whole = mark["condition"] == Condition.WHOLE.value
        return int(mark["version"]) if is_whole else None
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} is no mark of a version: {error}") from None
