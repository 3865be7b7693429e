"""Measures a workload over one method after the other; one process per rank, told by JSON.

Every method has a process group of its own kind as the default one, as in a script that names the
backend and changes nothing else.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from sparsewire.tools.experiment.crew import Tell, claim_stdout
from sparsewire.tools.training.worker import meter_of
from sparsewire.tools.training.workloads.catalogue import WORKLOADS
from sparsewire.tools.training.workloads.measure import (
    Order,
    Replaying,
    Stepping,
    Training,
    density,
    take_steps,
    told,
)
from sparsewire.tools.training.workloads.method import Method
from sparsewire.tools.training.workloads.recording import Recording, record
from sparsewire.tools.training.workloads.workload import Job


def run(order: Order, store: Store, tell: Tell) -> None:
    """Record gradients, tell their density, and measure every method; collective."""
    recorded = Recorded(order)
    with group("gloo", "density", store, order.timeout_s):
        job, recording = recorded.of(sparse=False)
        gradients = zip(job.model.parameters(), recording.steps[0], strict=True)
        parameters = sum(parameter.numel() for parameter in job.model.parameters())
        tell("recorded", parameters=parameters, density=told(density(gradients)))

    def tell_step(method: str, done: int) -> None:
        tell("step", method=method, done=done)

    for number, method in enumerate(order.methods):
        how = Method.parse(method)
        backend = how.averaging.backend
        with group(backend, f"{number}", store, order.timeout_s):
            stepping = _stepping(order, recorded, how)
            meter = meter_of(backend, order.interface)
            found = take_steps(stepping, order, meter, partial(tell_step, method))
            tell("measured", method=method, steps=told(found))
            del stepping
            gc.collect()


class Recorded:
    """A job and its recorded gradients in either form, each made where it is first asked for."""

    def __init__(self, order: Order) -> None:
        self._order, self._rank = order, int(os.environ["RANK"])
        self._made: dict[bool, tuple[Job, Recording]] = {}

    def of(self, sparse: bool) -> tuple[Job, Recording]:
        if sparse not in self._made:
            job, order = made(self._order, sparse), self._order
            self._made[sparse] = job, record(job, order.seed, self._rank, order.recorded)
        return self._made[sparse]


def _stepping(order: Order, recorded: Recorded, how: Method) -> Stepping:
    if order.mode == "gradients":
        return Replaying(*recorded.of(how.sparse), how.averaging, order.compute_s)
    # Each method starts from the same job.
    return Training(made(order, how.sparse), how.averaging, order.seed)


def made(order: Order, sparse: bool) -> Job:
    """The job, which is the same on all ranks."""
    torch.manual_seed(order.seed)
    workload = WORKLOADS[order.name]
    return workload.make(workload.sizes[order.size], sparse)


@contextmanager
def group(backend: str, name: str, store: Store, timeout_s: float) -> Iterator[None]:
    """A default process group for as long as a `with` block lasts."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        backend,
        store=PrefixStore(name, store),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    yield
    dist.barrier()
    dist.destroy_process_group()


def joined_store(timeout_s: float) -> Store:
    """The store of all ranks, which is on the first one's host."""
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        int(os.environ["WORLD_SIZE"]),
        os.environ["RANK"] == "0",
        timedelta(seconds=timeout_s),
    )


def main() -> None:
    """Join the other ranks, and do what the only argument says."""
    tell = claim_stdout()
    order = Order(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    run(order, joined_store(order.timeout_s), tell)


if __name__ == "__main__":
    main()
