"""Processes that start and end together on the hosts of a site: what they say, why they failed.

Workers send events to their starter, one line of JSON each, on standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparsewire.errors import ExperimentError, WorkerFailed
from sparsewire.tools.experiment.signals import held_back
from sparsewire.tools.lab.aggregators import Aggregation
from sparsewire.tools.lab.site import Loopback, Site, free_ports

_GRACE_S = 5.0
"""Seconds for processes that are told to end."""
_FAILURE_GRACE_S = 3.0
"""Seconds for further workers to fail once one has: the first is not always the culprit."""
_LOG_LINES = 30

# Workers share the machine's cores, so one thread each. And they keep freed memory: otherwise each
# step of a training gives its large arrays back to the system, only to fault them in again.
_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}

Environment = Mapping[str, str]
Event = dict[str, Any]
"""An event: its kind under "event", and further fields."""


class Tell(Protocol):
    """Tells one event: tell("step", number=3)."""

    def __call__(self, kind: str, /, **fields: object) -> None: ...


def claim_stdout() -> Tell:
    """Keep standard output for events; whatever a library prints goes to standard error."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(kind: str, /, **fields: object) -> None:
        lines.write(json.dumps({"event": kind, **fields}) + "\n")

    return tell


@dataclass(frozen=True)
class Process:
    """A started process, and the file that its standard error goes to."""

    name: str
    popen: subprocess.Popen[str]
    log: Path

    def tail(self, lines: int) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Crew:
    """Worker processes, one for each rank, and others beside them. None outlives the `with` block.

    Standard error of each goes to a file of its own in `logs`.
    """

    def __init__(self, site: Site, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._site, self._logs = site, logs
        self._workers: list[Process] = []
        self._others: list[Process] = []
        self._said: queue.SimpleQueue[tuple[Process, str | None]] = queue.SimpleQueue()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        everybody = [process.popen for process in self._workers + self._others]
        # A further Ctrl-C cannot end this any sooner.
        with held_back():
            for popen in everybody:
                popen.terminate()
            _wait(everybody, _GRACE_S)
            for popen in everybody:
                popen.kill()
                popen.wait()

    def start_workers(
        self,
        argv: Sequence[str],
        ranks: int,
        environment: Environment,
        own_environment: Callable[[int], Environment] = lambda rank: {},
    ) -> None:
        """Run `argv` on the first `ranks` hosts, with the variables of a launcher.

        `own_environment` is what only one rank is told.
        """
        (port,) = free_ports(1)
        for rank in range(ranks):
            launched = self._site.environment(rank, world_size=ranks, master_port=port)
            name = f"rank{rank}"
            whole = {**environment, **own_environment(rank), **launched}
            self._start(self._workers, name, rank, argv, whole, subprocess.PIPE)

    def start_aggregators(
        self, aggregation: Aggregation, environment: Environment
    ) -> list[Process]:
        """Start those of the site, beside the workers."""
        return [
            self.start_beside(f"aggregator{index}", place, argv, environment)
            for index, (place, argv) in enumerate(aggregation.commands())
        ]

    def start_beside(
        self, name: str, host: int, argv: Sequence[str], environment: Environment
    ) -> Process:
        """Run `argv` on a host until the workers have ended, and not less."""
        return self._start(self._others, name, host, argv, environment, subprocess.DEVNULL)

    def events(self) -> Iterator[tuple[int, Event]]:
        """Yields the workers' events with their ranks until all have ended.

        Raises WorkerFailed, with what the processes wrote, as soon as one of them fails, and
        ExperimentError as soon as a process beside them ends.
        """
        running = len(self._workers)
        while running:
            process, line = self._said.get()
            if process in self._others:
                raise _ended(process)
            rank = self._workers.index(process)
            if line is not None:
                yield rank, json.loads(line)
            else:
                running -= 1
                if process.popen.returncode:
                    raise self._failure(rank)

    def _start(
        self,
        processes: list[Process],
        name: str,
        host: int,
        argv: Sequence[str],
        environment: Environment,
        output: int,
    ) -> Process:
        """Run `argv` as one more of `processes`."""
        log = self._logs / f"{name}.log"
        # A process that is not in the list would outlive all others.
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "text": True}
        with log.open("w") as errors, held_back():
            popen = self._site.popen(host, argv, environment, stderr=errors, **streams)
            process = Process(name, popen, log)
            processes.append(process)
        threading.Thread(target=self._follow, args=(process,), daemon=True).start()
        return process

    def _follow(self, process: Process) -> None:
        """Pass on what a process says, and then that it has ended."""
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        process.popen.wait()
        # A child of the process's may keep its output open for longer.
        reader.join(_FAILURE_GRACE_S)
        self._said.put((process, None))

    def _read(self, process: Process) -> None:
        if process.popen.stdout is not None:
            with process.popen.stdout as lines:
                for line in lines:
                    self._said.put((process, line))

    def _failure(self, rank: int) -> WorkerFailed:
        _wait([worker.popen for worker in self._workers], _FAILURE_GRACE_S)
        first = self._workers[rank]
        others = [p for p in self._workers + self._others if p is not first and p.popen.poll()]
        parts = [first.tail(_LOG_LINES), *(f"{p.name} failed too: {p.tail(1)}" for p in others)]
        return WorkerFailed(rank, first.popen.returncode, "\n".join(parts))


def _ended(process: Process) -> ExperimentError:
    status = process.popen.returncode
    return ExperimentError(
        f"{process.name} ended before the workers, with status {status}; the end of its log:\n"
        f"{process.tail(_LOG_LINES)}"
    )


def _wait(processes: Sequence[subprocess.Popen[str]], seconds: float) -> None:
    """Wait until all have ended, or the time is over."""
    end = time.monotonic() + seconds
    for popen in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(max(0.0, end - time.monotonic()))


def run_workers(
    site: Site, argv: Sequence[str], logs: Path, on_event: Callable[[Event], None]
) -> None:
    """Run `argv` for every rank of the site until all have ended; pass on rank 0's events.

    Aggregators that the site has run beside them, and the ranks are told of them.

    Standard error goes to one file per rank in `logs`. Raises WorkerFailed, with what it wrote, as
    soon as a worker fails. No worker outlives the call.
    """
    environment = {**_DEFAULTS, **os.environ}
    with Crew(site, logs) as crew:
        if site.aggregators:
            aggregation = Aggregation.of(site)
            environment.update(aggregation.settings())
            crew.start_aggregators(aggregation, environment)
            crew.start_workers(argv, site.world_size, environment, aggregation.environment)
        else:
            crew.start_workers(argv, site.world_size, environment)
        for rank, event in crew.events():
            if rank == 0:
                on_event(event)


def run_on_loopback(
    module: str, *arguments: str, ranks: int, on_event: Callable[[Event], None]
) -> None:
    """Run a module of this package as `ranks` ranks on loopback, as `run_workers` does."""
    with tempfile.TemporaryDirectory(prefix="sparsewire-workers-") as logs:
        run_workers(Loopback(ranks), module_argv(module, *arguments), Path(logs), on_event)


def module_argv(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this Python."""
    return [sys.executable, "-m", module, *arguments]
