"""The messages of a chain as files: a publisher that comes back goes on where it ended."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sparsewire.errors import DataError, InputError
from sparsewire.weights.message import Delta, read
from sparsewire.weights.spool import Spool, mapped
from sparsewire.weights.sync.chain import Entry

_log = logging.getLogger(__name__)

_SUFFIX = ".delta"
_IDENTITY = "chain"


class Store:
    """Messages of one publisher: in `directory`, which it locks, or in memory for None."""

    def __init__(self, directory: Path | None) -> None:
        """Raises InputError if another process publishes from the directory, and OSError."""
        self._directory = directory
        self._lock = _locked(directory) if directory else None
        self.spool = Spool(directory)
        self.identity = self._identify()
        self._memory: dict[str, memoryview] = {}

    def _identify(self) -> str:
        fresh = secrets.token_hex(8)
        if not self._directory:
            return fresh
        path = self._directory / _IDENTITY
        if not path.exists():
            path.write_text(fresh)
        return path.read_text().strip()[:64]

    def load(self) -> Iterator[Entry]:
        """The messages that are there, in order; damaged ones are removed."""
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")) if self._directory else []:
            try:
                delta = read(path)
                entry = _entry(delta)
                self._memory[entry.key] = delta.memory
                yield entry
            except (DataError, ValueError) as error:
                _log.warning("dropped %s: %s", path, error)
                path.unlink()

    def memory(self, entry: Entry) -> memoryview:
        """The bytes of a message that is there."""
        return self._memory[entry.key]

    def keep(self, file: BinaryIO, entry: Entry) -> memoryview:
        """Keep a written message, and return its bytes. Raises OSError."""
        memory = memoryview(mapped(file, entry.size).data).toreadonly()
        self.spool.keep(file, entry.key + _SUFFIX)
        file.close()
        self._memory[entry.key] = memory
        return memory

    def drop(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._memory.pop(entry.key, None)
            if self._directory:
                (self._directory / (entry.key + _SUFFIX)).unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(
            f"another process publishes from {directory}: end it first, or name another directory"
        ) from None
    return descriptor


def _entry(delta: Delta) -> Entry:
    """Raises ValueError for a message whose versions are no numbers."""
    base = int(delta.base_version) if delta.base else None
    size = len(delta.memory)
    return Entry(int(delta.version), base, delta.base, delta.fresh, size, delta.checksum)
