"""Files and directories that appear as a whole, or not at all, even if the power fails."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What file systems on top of object stores answer where there is nothing to sync.
_NOT_KNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, to make it in; it goes in the end, with what is left in it."""
    folder = Path(tempfile.mkdtemp(prefix=".sparsewire.", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(made: Path, target: Path) -> None:
    """Name `made` `target`, which it replaces, once all of it is on the disk. Raises OSError."""
    for path in [*made.rglob("*"), made]:
        if not path.is_symlink():
            sync(path)
    os.replace(made, target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Have the disk hold what a file has, or the names in a directory. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(number)
    except OSError as error:
        if not path.is_dir() or error.errno not in _NOT_KNOWN:
            raise
    finally:
        os.close(number)
