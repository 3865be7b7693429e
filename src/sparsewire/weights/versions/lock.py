"""A directory that one process at a time may change: a publisher's, or that of a reader."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path

from sparsewire.errors import InputError
from sparsewire.lifetime import disown_in_child

# What file systems answer that know no locks: then nobody is kept out.
_NOT_KNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class DirectoryLock:
    """Held until it is closed. A forked child lets go of it, lest it keeps it when the parent is
    killed."""

    def __init__(self, directory: Path, use: str) -> None:
        """Make the directory, and lock it; raises InputError if another one has it for its `use`,
        and OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
        self._closing = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InputError(
                f"another process {use} {directory}: end it first, or name another one"
            ) from None
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                self.close()
                raise
        disown_in_child(self, "close")

    def close(self) -> None:
        self._closing()
