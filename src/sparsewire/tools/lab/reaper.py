"""Ends every process inside given network namespaces.

A lab uses it when it closes. It also starts this file as a script, which waits for the lab to die
and then does the same: no process outlives a lab, however the lab ended.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Set

NamespaceId = tuple[int, int]
"""Device and inode number, which identify a namespace while somebody keeps it open."""


def members(namespaces: Set[NamespaceId]) -> list[int]:
    """Return the ids of the processes whose main thread is in one of `namespaces`."""
    return [
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdigit() and _namespace_of(int(entry)) in namespaces
    ]


def end(namespaces: Set[NamespaceId], grace: float = 0.0) -> None:
    """Ask all processes in `namespaces` to end; after `grace` seconds, kill those that have not."""
    deadline = time.monotonic() + grace
    asked: set[int] = set()
    while remaining := members(namespaces):
        late = time.monotonic() >= deadline
        for process in remaining:
            if late:
                _signal(process, signal.SIGKILL)
            elif process not in asked:
                _signal(process, signal.SIGTERM)
                asked.add(process)
        time.sleep(0.02)


def _namespace_of(process: int) -> NamespaceId | None:
    try:
        status = os.stat(f"/proc/{process}/ns/net")
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _watch(descriptors: list[int]) -> None:
    # The lab holds the other end of standard input: the end of file is the lab's death. The open
    # descriptors keep the namespaces' identities from being given to others in the meantime.
    statuses = [os.fstat(descriptor) for descriptor in descriptors]
    sys.stdin.buffer.read()
    end({(status.st_dev, status.st_ino) for status in statuses})


if __name__ == "__main__":
    _watch([int(argument) for argument in sys.argv[1:]])
