"""FSDP2: every rank keeps a part of the parameters.

    torchrun --nproc-per-node 2 examples/integrations/fsdp2.py
    torchrun --nproc-per-node 2 examples/integrations/fsdp2.py sparsewire hybrid
    torchrun --nproc-per-node 2 examples/integrations/fsdp2.py gloo

Sharded, gradients go through reduce_scatter, which is gloo's (NCCL's on GPUs). With `hybrid`, parts
are kept within a host and added up across hosts by all_reduce, which is the engine's.
"""

import sys

import torch
import torch.distributed as dist
from task import BATCH, LEARNING_RATE, data, new_model, show
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler


def main(backend: str, hybrid: bool) -> None:
    dist.init_process_group(backend)
    hosts = dist.get_world_size() if hybrid else 1
    shape = (hosts, dist.get_world_size() // hosts)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    model = fully_shard(new_model(), mesh=mesh if hybrid else mesh["shard"])
    dataset = data()
    loader = DataLoader(dataset, BATCH, sampler=DistributedSampler(dataset, shuffle=False))
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for items, scores in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(items), scores).backward()
        optimizer.step()
    show(model, group=mesh.get_group("replicate" if hybrid else "shard"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire", "hybrid" in sys.argv)
