"""Runs commands for `gpu-day` up to a deadline, and ends them with all that they started.

torchrun puts every rank into a session of its own, so no process group holds them all. Instead this
process adopts whatever loses its parent, and finds all by their parents.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

GRACE_S = 15.0
"""For a command that was asked to end: torchrun ends its ranks meanwhile."""
LEAVING_S = 2.0
"""For what a command left behind, which may be about to end."""
GONE_S = 5.0
"""For what was killed; a driver may hold it longer."""
POLL_S = 0.02

PR_SET_CHILD_SUBREAPER = 36

Commands = Sequence[subprocess.Popen[bytes]]


class Outcome(NamedTuple):
    """What became of a command; its exit is None where it could not be killed."""

    exit: int | None
    was_late: bool
    output: str


def run_beside(
    commands: Sequence[Sequence[str]],
    logs: Sequence[Path],
    deadline: float,
    folder: Path,
    variables: Mapping[str, str],
) -> list[Outcome]:
    """Run commands beside each other, their output in `logs`; none of their processes is left."""
    adopt_orphans()
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, log in zip(commands, logs, strict=True):
            running.append(_start(command, log, folder, variables))
        _wait(running, deadline)
        late = [each.poll() is None for each in running]
    finally:
        _end(running)
    texts = [log.read_text(errors="replace") for log in logs]
    return [
        Outcome(each.returncode, was_late, text)
        for each, was_late, text in zip(running, late, texts, strict=True)
    ]


def adopt_orphans() -> None:
    """Become the parent of those below this process whose parent ends."""
    arguments = map(ctypes.c_ulong, (1, 0, 0, 0))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, *arguments)


def _start(
    command: Sequence[str], log: Path, folder: Path, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    # Into a file: a pipe ends only with the last process that holds it.
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=folder, env=variables, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _end(running: Commands) -> None:
    """Ask commands to end, and kill what is left then."""
    for each in running:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGTERM)
    _wait(running, time.monotonic() + GRACE_S)
    _until(time.monotonic() + LEAVING_S, lambda: not _left(running))
    _until(time.monotonic() + GONE_S, lambda: not _kill(_left(running)))


def _wait(running: Commands, deadline: float) -> None:
    _until(deadline, lambda: all(each.poll() is not None for each in running))


def _until(deadline: float, is_done: Callable[[], bool]) -> None:
    while not is_done() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _kill(pids: set[int]) -> set[int]:
    """Kill these; they may have made others since they were looked for."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _left(running: Commands) -> set[int]:
    """The processes below this one, without those that have ended."""
    for each in running:
        each.poll()
    commands = {each.pid for each in running}
    return {pid for pid in _descendants() if pid in commands or not _reap(pid)}


def _reap(pid: int) -> bool:
    """Whether an adopted process has ended; its remains are gone then."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False  # Its own parent is still there.


def _descendants() -> set[int]:
    parents = dict(_parents())
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield (
                int(stat.parent.name),
                int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]),
            )
