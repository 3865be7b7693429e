"""One rank of a benchmark, started as `python -m sparsewire.bench.worker JOB`: JSON lines out."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from sparsewire.bench.backends import Backend, open_backends
from sparsewire.bench.job import Job, Progress
from sparsewire.bench.measure import CaseRun


def main() -> None:
    """Run all cases of the job given as the only argument."""
    events = _claim_stdout()
    job = Job.from_json(sys.argv[1])
    torch.set_num_threads(1)
    store = _join(job)
    backends = open_backends(job, store)
    _run_cases(job, backends, events)
    for backend in backends.values():
        backend.close()
    dist.destroy_process_group()


def _claim_stdout() -> TextIO:
    """Keep standard output for events; whatever a library prints goes to standard error."""
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return events


def _emit(events: TextIO, kind: str, fields: dict[str, Any]) -> None:
    events.write(json.dumps({"event": kind, **fields}) + "\n")


def _join(job: Job) -> Store:
    """Meet the other ranks and make gloo the default group, which also aligns the ranks."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout = timedelta(seconds=job.timeout_s)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, world_size, rank == 0, timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    return store


def _run_cases(job: Job, backends: dict[str, Backend], events: TextIO) -> None:
    for index in range(len(job.cases)):

        def report(done: int, total: int, index: int = index) -> None:
            _emit(events, "progress", asdict(Progress(index, done, total)))

        _emit(events, "report", asdict(CaseRun(job, index).run(backends, report)))


if __name__ == "__main__":
    main()
