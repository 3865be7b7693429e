"""One rank of a benchmark, started as `python -m sparsewire.bench.worker JOB`: JSON lines out."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, astuple
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from sparsewire.bench.backends import Backend, open_backends
from sparsewire.bench.case_run import CaseRun
from sparsewire.bench.job import Job
from sparsewire.experiment.crew import Tell, claim_stdout


def main() -> None:
    """Run all cases of the job given as the only argument."""
    tell = claim_stdout()
    job = Job.from_json(sys.argv[1])
    torch.set_num_threads(1)
    store = _join(job)
    backends = open_backends(job, store)
    for index in range(len(job.cases)):
        _run_case(job, index, backends, tell)
    for backend in backends.values():
        backend.close()
    dist.destroy_process_group()


def _join(job: Job) -> Store:
    """Meet the other ranks and make gloo the default group, which also aligns the ranks."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout = timedelta(seconds=job.timeout)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, world_size, rank == 0, timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    return store


def _run_case(job: Job, index: int, backends: dict[str, Backend], tell: Tell) -> None:
    run = CaseRun(job, index)
    needed = run.share()
    measured = run.run(backends, lambda done, of: tell("progress", case=index, done=done, total=of))
    samples = {name: asdict(sample) for name, sample in measured.items()}
    tell("measured", case=index, share=astuple(needed), samples=samples)


if __name__ == "__main__":
    main()
