"""A workload as a training script: plain DistributedDataParallel over the backend of that name.

    torchrun --nproc-per-node 4 -m sparsewire.tools.training.workloads deeplight --backend gloo

It runs under whatever sets the variables that torch.distributed reads.
"""

from __future__ import annotations

import argparse
import time
from typing import get_args

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sparsewire.tools.training.workloads.catalogue import WORKLOADS
from sparsewire.tools.training.workloads.workload import Size


def options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--backend", default="sparsewire")
    parser.add_argument("--size", choices=get_args(Size), default="here")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sparse", action="store_true", help="sparse gradients of tables")
    return parser.parse_args()


def train(given: argparse.Namespace) -> None:
    """Train, and print each step's loss."""
    workload = WORKLOADS[given.name]
    torch.manual_seed(given.seed)
    job = workload.make(workload.sizes[given.size], given.sparse)
    model = DistributedDataParallel(job.model, gradient_as_bucket_view=True)
    optimizer = job.optimizer(model.parameters())
    # A loader would draw them meanwhile, on processors of its own.
    batches = [job.batch_of(given.seed, dist.get_rank(), step) for step in range(given.steps)]
    for step, batch in enumerate(batches):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach() / dist.get_world_size())
        if dist.get_rank() == 0:
            took = time.perf_counter() - start
            print(f"step {step + 1}: loss {mean:.6f}, {took * 1e3:.4g} ms", flush=True)


def main() -> None:
    """Train over the backend that the command line names."""
    given = options()
    dist.init_process_group(given.backend)
    # The model is gone before its group: what DDP lets go of last, it may wait for without end.
    train(given)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
