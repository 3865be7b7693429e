"""DistributedDataParallel whose gradients are staged: the weights are the same, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_groups import DEVICES, always, assert_same_bits, operations, staged_group
from models import FEATURES, STEPS, batch_of
from ranks import Ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from sparsewire.device.path_cost import Path
from sparsewire.torch import hooks

ROWS, WIDTH = 3000, 64
Prepare = Callable[[Any, Any], None]


class Table(nn.Module):
    """A table, of whose gradient a few rows are not zero, and small layers behind it."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        rows = batch[:, : FEATURES // 2].abs().mul(1000).long() % ROWS
        return self.layers(self.table(rows).mean(1))


def train(
    group: Any, device: str, sparse: bool, prepare: Prepare, **options: Any
) -> list[torch.Tensor]:
    """The weights of this rank in the end."""
    torch.manual_seed(1)
    model = DistributedDataParallel(Table(sparse).to(device), process_group=group, **options)
    prepare(model, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch_of(step).to(device)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def plain(model: Any, group: Any) -> None:
    pass


def allreduce(model: Any, group: Any) -> None:
    model.register_comm_hook(group, default_hooks.allreduce_hook)


def fp16(model: Any, group: Any) -> None:
    model.register_comm_hook(group, default_hooks.fp16_compress_hook)


def power_sgd(model: Any, group: Any) -> None:
    state = powerSGD_hook.PowerSGDState(
        process_group=group, matrix_approximation_rank=2, start_powerSGD_iter=3
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def topk(model: Any, group: Any) -> None:
    state = hooks.TopKState(k=4, span=512, precision="int4", warmup_steps=1, process_group=group)
    model.register_comm_hook(state, hooks.topk_hook)


def error_feedback(model: Any, group: Any) -> None:
    state = hooks.ErrorFeedbackState(
        compressor="block-top-k:0.1", warmup_steps=1, process_group=group
    )
    model.register_comm_hook(state, hooks.error_feedback_hook)


def trains_as_on_the_cpu(
    device: str, path: Path, sparse: bool, prepare: Prepare, options: dict[str, Any]
) -> None:
    expected = train(dist.group.WORLD, "cpu", sparse, prepare, **options)
    with always(path), staged_group(device) as group:
        actual = train(group, device, sparse, prepare, **options)
        assert operations(group) > 0
        for one, other in zip(actual, expected, strict=True):
            if device == "cpu":
                assert_same_bits(one, other)
            else:  # Layers are computed in another order there.
                torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("path", [Path.PACKED, Path.DENSE])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_training(ranks: Ranks, device: str, sparse: bool, path: Path) -> None:
    ranks.run(trains_as_on_the_cpu, device, path, sparse, plain, {})


OPTIONS: dict[str, dict[str, Any]] = {
    "many_buckets": {"bucket_cap_mb": 0.001},
    "bucket_views": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "unused_parameters": {"find_unused_parameters": True},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("device", DEVICES)
def test_options(ranks: Ranks, device: str, name: str) -> None:
    ranks.run(trains_as_on_the_cpu, device, Path.PACKED, False, plain, OPTIONS[name])


@pytest.mark.parametrize("prepare", [allreduce, fp16, power_sgd, topk, error_feedback])
@pytest.mark.parametrize("device", DEVICES)
def test_hooks(ranks: Ranks, device: str, prepare: Prepare) -> None:
    ranks.run(trains_as_on_the_cpu, device, Path.PACKED, False, prepare, {})
