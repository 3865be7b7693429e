"""The timeline of this process: one file, to which all of its communicators write."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from sparsewire._core import Timeline
from sparsewire.lifetime import forget_in_child, never_free

_open: list[Timeline] = []


def timeline_of(name: str, rank: int) -> Timeline | None:
    """The process's timeline, which the first call makes for `rank`; None if `name` is "".

    Raises ValueError if the file cannot be written.
    """
    if name and not _open:
        path = timeline_path(name, rank)
        _open.append(Timeline(_create(path), rank, _title(rank)))
    return _open[0] if name else None


def timeline_path(name: str, rank: int) -> Path:
    """The file of a rank: `%r` in the name becomes the rank, and `%p` the number of the process.

    A name without `%r` gets the rank before its suffix: run.json becomes run.3.json.
    """
    if "%r" not in name:
        given = Path(name)
        name = str(given.with_name(f"{given.stem}.%r{given.suffix}"))
    return Path(name.replace("%r", str(rank)).replace("%p", str(os.getpid())))


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ValueError(f"SPARSEWIRE_TIMELINE: cannot write {path}: {error.strerror}") from None


def _title(rank: int) -> str:
    program = Path(sys.argv[0]).name if sys.argv else "python"
    return f"rank {rank}: {program}, process {os.getpid()} on {socket.gethostname()}"


def _disown() -> None:
    """In a forked child: leave the file to the parent, which has the writing thread."""
    for timeline in _open:
        never_free(timeline)
    _open.clear()


forget_in_child(_disown)
