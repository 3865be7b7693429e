"""Runs a program as all ranks of a site: starts the workers, follows rank 0, ends them all."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from sparsewire.bench.site import Site, free_ports
from sparsewire.workers.errors import WorkerFailed

POLL_S = 0.05
GRACE_S = 5.0
LOG_LINES = 30

# Workers share the machine's cores, so one thread each. And they keep freed memory: otherwise each
# step of a training gives its large arrays back to the system, only to fault them in again.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}

Event = dict[str, Any]
Process = subprocess.Popen[bytes]


def run_workers(
    site: Site, argv: Sequence[str], logs: Path, on_event: Callable[[Event], None]
) -> None:
    """Run `argv` on every host of the site until all have ended; pass on rank 0's events.

    An event is a line of JSON on standard output. Standard error goes to one file per rank in
    `logs`. Raises WorkerFailed as soon as a worker fails. No worker outlives the call.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with _workers(site, argv, logs) as workers, _events_file(logs, 0).open() as events:
        while not _all_ended(workers, logs):
            _pass_on(events, on_event)
            time.sleep(POLL_S)
        _pass_on(events, on_event)


@contextlib.contextmanager
def _workers(site: Site, argv: Sequence[str], logs: Path) -> Iterator[list[Process]]:
    (port,) = free_ports(1)
    workers: list[Process] = []
    try:
        for rank in range(len(site.addresses)):
            workers.append(_start(site, argv, logs, rank, port))
        yield workers
    finally:
        _end(workers)


def _start(site: Site, argv: Sequence[str], logs: Path, rank: int, port: int) -> Process:
    environment = {**ENVIRONMENT, **os.environ, **site.environment(rank, master_port=port)}
    with _events_file(logs, rank).open("w") as output, _log_file(logs, rank).open("w") as errors:
        return site.popen(
            rank, argv, environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )


def _end(workers: list[Process]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        try:
            worker.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _all_ended(workers: list[Process], logs: Path) -> bool:
    statuses = [worker.poll() for worker in workers]
    for rank, status in enumerate(statuses):
        if status:
            raise WorkerFailed(rank, status, _tail(_log_file(logs, rank)))
    return None not in statuses


def _pass_on(events: TextIO, on_event: Callable[[Event], None]) -> None:
    for line in _complete_lines(events):
        on_event(json.loads(line))


def _complete_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines written since the last call; leave an unfinished one for the next."""
    while True:
        position = file.tell()
        line = file.readline()
        if not line.endswith("\n"):
            file.seek(position)
            return
        yield line


def _events_file(logs: Path, rank: int) -> Path:
    return logs / f"rank{rank}.events"


def _log_file(logs: Path, rank: int) -> Path:
    return logs / f"rank{rank}.log"


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-LOG_LINES:])
