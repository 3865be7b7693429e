"""The smallest DistributedDataParallel program: torch starts the processes, and the loop is plain.

python examples/integrations/torch_ddp.py
python examples/integrations/torch_ddp.py gloo
torchrun --nproc-per-node 2 examples/integrations/torch_ddp.py
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from task import BATCH, LEARNING_RATE, data, new_model, show
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(model: nn.Module) -> None:
    dataset = data()
    loader = DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset, shuffle=False))
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for items, scores in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(items), scores).backward()
        optimizer.step()


def main(backend: str) -> None:
    dist.init_process_group(backend)
    model = DistributedDataParallel(new_model())
    train(model)
    show(model.module)
    dist.destroy_process_group()


def spawned(rank: int, world_size: int, backend: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    main(backend)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "sparsewire"
    if "RANK" in os.environ:
        main(chosen)
    else:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29500")
        mp.spawn(spawned, args=(2, chosen), nprocs=2)
