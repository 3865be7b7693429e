"""Starts the workers and aggregators of a job, follows their events, explains their failures."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsewire.bench.errors import BenchError
from sparsewire.bench.job import CaseReport, Job, Progress
from sparsewire.bench.site import Site, free_ports
from sparsewire.bench.usage import cpu_seconds

_AGGREGATOR = "from sparsewire.cli.main import app; app()"
_FAILURE_GRACE_S = 3.0


@dataclass(frozen=True)
class Process:
    """A started worker or aggregator, and the file that its standard error goes to."""

    name: str
    popen: subprocess.Popen[str]
    log: Path

    def tail(self, lines: int) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Outcome:
    """What came of one case: a report per rank, and the CPU time of all its aggregators."""

    reports: list[CaseReport] = field(default_factory=list)
    aggregator_cpu_s: float = 0.0


Event = tuple[int, dict[str, Any] | None]
"""A rank and what it said; None when it has ended."""


def run_job(
    job: Job,
    site: Site,
    ranks: int,
    aggregators: int,
    on_progress: Callable[[Progress], None],
) -> list[Outcome]:
    """Run a job on the first `ranks` hosts of the site, aggregators on the hosts after them.

    Returns one outcome per case. Raises BenchError, with what the processes wrote, as soon as one
    of them fails.
    """
    with (
        tempfile.TemporaryDirectory(prefix="sparsewire-bench-") as folder,
        _Crew(site, Path(folder)) as crew,
    ):
        environment = crew.start_aggregators(ranks, aggregators)
        crew.start_workers(job, ranks, environment)
        return crew.follow(len(job.cases), on_progress)


class _Crew:
    """The processes of one job; none of them outlives the `with` block."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site, self._folder = site, folder
        self._workers: list[Process] = []
        self._aggregators: list[Process] = []
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._workers + self._aggregators:
            process.popen.kill()
        for process in self._workers + self._aggregators:
            process.popen.wait()

    def start_aggregators(self, ranks: int, count: int) -> dict[str, str]:
        """Start dedicated aggregators; returns the variables with which workers find them."""
        if not count:
            # Those that the caller's environment may name are not part of this cluster.
            return {"SPARSEWIRE_AGGREGATORS": ""}
        secret = {"SPARSEWIRE_SECRET": secrets.token_hex(16)}
        binds = [
            f"{self._site.addresses[ranks + index]}:{port}"
            for index, port in enumerate(free_ports(count))
        ]
        for index, bind in enumerate(binds):
            argv = [sys.executable, "-c", _AGGREGATOR, "aggregator", "--bind", bind]
            process = self._start(f"aggregator {index}", ranks + index, argv, secret)
            self._aggregators.append(process)
        return {**secret, "SPARSEWIRE_AGGREGATORS": ",".join(binds)}

    def start_workers(self, job: Job, ranks: int, environment: dict[str, str]) -> None:
        argv = [sys.executable, "-m", "sparsewire.bench.worker", job.to_json()]
        (port,) = free_ports(1)
        for rank in range(ranks):
            own = self._site.environment(rank, world_size=ranks, master_port=port)
            worker = self._start(f"rank {rank}", rank, argv, {**own, **environment})
            self._workers.append(worker)
            threading.Thread(target=self._pump, args=(rank, worker), daemon=True).start()

    def follow(self, cases: int, on_progress: Callable[[Progress], None]) -> list[Outcome]:
        """Collect what the workers tell until every one has ended well."""
        outcomes = [Outcome() for _ in range(cases)]
        running = len(self._workers)
        while running:
            rank, event = self._events.get()
            if event is None:
                running -= 1
                if self._workers[rank].popen.wait():
                    raise BenchError(self._explain(self._workers[rank]))
            elif event.pop("event") == "report":
                outcome = outcomes[event["case"]]
                outcome.reports.append(CaseReport.from_fields(event))
                if rank == 0:
                    outcome.aggregator_cpu_s += self._aggregator_cpu_s()
            elif rank == 0:
                progress = Progress(**event)
                if not progress.done:
                    outcomes[progress.case].aggregator_cpu_s -= self._aggregator_cpu_s()
                on_progress(progress)
        return outcomes

    def _aggregator_cpu_s(self) -> float:
        return sum(cpu_seconds(process.popen.pid) for process in self._aggregators)

    def _start(self, name: str, host: int, argv: list[str], extra: dict[str, str]) -> Process:
        log = self._folder / name.replace(" ", "-")
        with log.open("w") as errors:
            popen = self._site.popen(
                host,
                argv,
                {**os.environ, "OMP_NUM_THREADS": "1", **extra},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name.startswith("rank") else errors,
                stderr=errors,
                text=True,
            )
        return Process(name, popen, log)

    def _pump(self, rank: int, worker: Process) -> None:
        assert worker.popen.stdout is not None
        with contextlib.suppress(ValueError), worker.popen.stdout as lines:
            for line in lines:
                self._events.put((rank, json.loads(line)))
        self._events.put((rank, None))

    def _explain(self, first: Process) -> str:
        """What all failed processes wrote: the one that ended first is not always the culprit."""
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.popen.wait(_FAILURE_GRACE_S)
        others = [p for p in self._workers + self._aggregators if p is not first and p.popen.poll()]
        parts = [f"{first.name} failed (exit {first.popen.returncode}):\n{first.tail(25)}"]
        parts += [f"{p.name} failed too: {p.tail(1)}" for p in others]
        return "\n".join(parts)
