"""The mark in a copy of a model that says which version it has, where `/pull_weights` keeps it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sparsewire.errors import DataError
from sparsewire.weights.directories import index
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.snapshot import MARK

_FILE = "state.json"
_BYTES_MAX = 1 << 16


def version_of(model: Path) -> str | None:
    """The version that a model says it has: by its mark, its index, or its name as slime gives it.

    None if it says none. Raises DataError for a mark that says nothing, and OSError.
    """
    if not model.is_dir():
        return None
    mark = model / MARK / _FILE
    if mark.is_file():
        return _told(mark)
    named = re.fullmatch(r"weight_v([0-9]{6,})", model.resolve().name)
    return index.version_in(model) or (named[1] if named else None)


def mark(model: Path, version: str) -> None:
    """Have a model say that it has this version."""
    (model / MARK).mkdir()
    (model / MARK / _FILE).write_text(json.dumps({"version": version}))


def _told(mark: Path) -> str:
    with mark.open("rb") as file:
        text = file.read(_BYTES_MAX)
    try:
        return index.version(json.loads(text)["version"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DataError(f"{shown(mark)} names no version: {error}") from None
