"""Memory for messages and versions: anonymous, or files in a directory, which survive a restart."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from sparsewire.errors import ResourceError
from sparsewire.weights.versions.atomic import sync
from sparsewire.weights.versions.tensors import Bytes

_PREFIX = ".sparsewire."


class Spool:
    """Where files of a publisher or a receiver go: into `directory`, or into memory for None."""

    def __init__(self, directory: Path | None) -> None:
        """Make the directory, and clear what a killed process left half-written. Raises OSError."""
        self.directory = directory
        if directory:
            directory.mkdir(parents=True, exist_ok=True)
            for left in directory.glob(f"{_PREFIX}*"):
                left.unlink(missing_ok=True)

    def file(self) -> BinaryIO:
        """An empty file, open for both ways, that goes with its last user unless it is kept."""
        if self.directory:
            made = tempfile.NamedTemporaryFile(  # noqa: SIM115
                prefix=_PREFIX, dir=self.directory, delete=False
            )
            return cast(BinaryIO, made)
        return os.fdopen(os.memfd_create("sparsewire"), "w+b")

    def keep(self, file: BinaryIO, name: str) -> None:
        """Let the file appear in the directory under this name, once its bytes are on the disk."""
        if not self.directory:
            return
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, self.directory / name)
        sync(self.directory)

    def drop(self, file: BinaryIO) -> None:
        """Close a file that is not kept; its memory goes with those that map it."""
        file.close()
        if self.directory:
            Path(file.name).unlink(missing_ok=True)

    def memory(self, nbytes: int) -> Bytes:
        """Zeros to write to, which the kernel may move to the disk of the directory.

        Raises OSError where there is no room.
        """
        if not nbytes:
            return np.empty(0, np.uint8)
        file = self.file()
        try:
            return mapped(file, nbytes)
        finally:
            self.drop(file)


def mapped(file: BinaryIO, nbytes: int) -> Bytes:
    """The file as memory of so many bytes, which are set aside before. Raises OSError."""
    # A write to mapped memory that finds the disk full would kill the process.
    os.posix_fallocate(file.fileno(), 0, nbytes)
    return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)


def memory(nbytes: int) -> Bytes:
    """Zeros of the process's own. Raises ResourceError where there is no room."""
    try:
        return np.zeros(nbytes, np.uint8)
    except MemoryError:
        raise ResourceError(
            f"there is no memory for {nbytes} bytes of weights: allow for more, or read into fewer "
            "tensors"
        ) from None
