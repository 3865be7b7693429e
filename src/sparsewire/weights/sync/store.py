"""The messages of a chain as files: a publisher that comes back goes on where it ended."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sparsewire.errors import DataError
from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.versions.lock import DirectoryLock
from sparsewire.weights.versions.message import Delta, OtherFormat, read
from sparsewire.weights.versions.spool import Spool, mapped

_log = logging.getLogger(__name__)

_SUFFIX = ".delta"
_NAMES = re.compile(rf"([0-9]{{12}})(-[0-9]{{12}})?{re.escape(_SUFFIX)}")
_IDENTITY, _LOST = "chain", "lost"


class Store:
    """Messages of one publisher: in `directory`, which it locks, or in memory for None."""

    def __init__(self, directory: Path | None) -> None:
        """Raises InputError if another process publishes from the directory, DataError for a
        directory that is none of a publisher, and OSError."""
        self._directory = directory
        self._lock = DirectoryLock(directory, "publishes from") if directory else None
        self._memory: dict[str, memoryview] = {}
        try:
            self.spool = Spool(directory)
            self.identity = self._read(_IDENTITY)[:64] or secrets.token_hex(8)
            self._write(_IDENTITY, self.identity)
            self.lost = self._read_lost()
            """The newest version whose message was damaged; its number may not come again."""
        except BaseException:
            self.close()
            raise

    def _read(self, name: str) -> str:
        """What a small file says; nothing where there is none."""
        path = self._directory / name if self._directory else None
        return path.read_text().strip() if path and path.exists() else ""

    def _read_lost(self) -> int:
        text = self._read(_LOST) or "-1"
        try:
            return int(text)
        except ValueError:
            raise DataError(
                f"{_LOST} in {self._directory} is damaged: write the number of the newest version "
                "to it that any reader may have"
            ) from None

    def _write(self, name: str, text: str) -> None:
        if not self._directory or text == self._read(name):
            return
        file = self.spool.file()
        try:
            file.write(text.encode())
            self.spool.keep(file, name)
            file.close()
        except BaseException:
            self.spool.drop(file)
            raise

    def load(self) -> Iterator[Entry]:
        """The messages that are there, in order; damaged ones are removed.

        Raises DataError for those of another version of sparsewire, which stay.
        """
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")) if self._directory else []:
            named = _NAMES.fullmatch(path.name)
            if not named:
                _log.warning("%s has no name of a message: it stays as it is", path)
                continue
            try:
                delta = read(path)
                entry = entry_of(delta, len(delta.memory), delta.checksum)
                if entry.key + _SUFFIX != path.name:
                    raise DataError(f"it is message {entry.key}")
                self._memory[entry.key] = delta.memory
                yield entry
            except OtherFormat:
                raise
            except (DataError, ValueError) as error:
                _log.warning("dropped %s: %s", path, error)
                self.lose(int(named[1]))
                path.unlink()

    def lose(self, version: int) -> None:
        """Remember that a version was made, and that its message is of no use any more."""
        self.lost = max(self.lost, version)
        self._write(_LOST, str(self.lost))

    def memory(self, entry: Entry) -> memoryview:
        """The bytes of a message that is there."""
        return self._memory[entry.key]

    def keep(self, file: BinaryIO, entry: Entry) -> memoryview:
        """Keep a written message, and return its bytes. Raises OSError."""
        memory = memoryview(mapped(file, entry.size).data).toreadonly()
        try:
            self.spool.keep(file, entry.key + _SUFFIX)
        except BaseException:
            self.drop([entry])  # It may have its name, and the version was not published.
            raise
        file.close()
        self._memory[entry.key] = memory
        return memory

    def drop(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._drop(entry.key)

    def _drop(self, key: str) -> None:
        self._memory.pop(key, None)
        if self._directory:
            (self._directory / (key + _SUFFIX)).unlink(missing_ok=True)

    def keep_only(self, entries: Sequence[Entry]) -> None:
        """Drop what is of no chain."""
        for key in self._memory.keys() - {entry.key for entry in entries}:
            self._drop(key)

    def close(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None


def entry_of(delta: Delta, size: int, checksum: bytes) -> Entry:
    """The message of so many bytes in a chain; raises ValueError if its versions are no numbers."""
    base = int(delta.base_version) if delta.base else None
    return Entry(int(delta.version), base, delta.base, delta.fresh, size, checksum)
