"""What builds on process groups: device meshes, DTensor, FSDP2 and functional training steps."""

from __future__ import annotations

import torch
import torch.distributed as dist
from models import FEATURES, Plain, batch_of
from ranks import Ranks
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def sharded_tensors() -> None:
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(12.0 * size).reshape(size * 4, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert sharded.to_local().shape == (4, 3)
    assert sharded.redistribute(mesh, [Replicate()]).to_local().equal(whole)
    assert sharded.full_tensor().equal(whole)
    assert sharded.sum().full_tensor() == whole.sum()
    assert (sharded.t() @ sharded).shape == (3, 3)


def test_dtensor(ranks: Ranks) -> None:
    ranks.run(sharded_tensors)


def losses_of(model: nn.Module) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        loss = model(batch_of(step), step).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def fully_sharded() -> None:
    torch.manual_seed(1)
    reference = nn.parallel.DistributedDataParallel(Plain())
    expected = losses_of(reference)
    torch.manual_seed(1)
    model = Plain()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    torch.testing.assert_close(losses_of(model), expected, rtol=1e-4, atol=1e-5)


def test_fsdp2(ranks: Ranks) -> None:
    ranks.run(fully_sharded)


def hybrid(mesh: DeviceMesh) -> None:
    torch.manual_seed(1)
    model = nn.Linear(FEATURES, 4)
    fully_shard(model, mesh=mesh)
    model(batch_of(0)).sum().backward()
    assert model.weight.grad is not None


def hybrid_sharded() -> None:
    hybrid(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def test_hybrid_fsdp2_on_a_mesh_of_subgroups(new_ranks) -> None:
    new_ranks(4).run(hybrid_sharded)


def tensor_parallel() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, 2))
    data = torch.ones(3, FEATURES)
    expected = model(data)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(model(data), expected)


def test_tensor_parallel(ranks: Ranks) -> None:
    ranks.run(tensor_parallel)
