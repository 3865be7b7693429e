"""Files and directories that appear as a whole, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, to make it in; it goes in the end, with what is left in it."""
    folder = Path(tempfile.mkdtemp(prefix=".sparsewire.", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
