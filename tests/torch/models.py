"""Small models and data for training tests, the same on every rank but for the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
BATCH = 4
FEATURES = 16


class Plain(nn.Module):
    """Three layers and a buffer that DDP broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        return self.layers(batch)


class Branching(nn.Module):
    """Uses one of two branches, a different one on each rank and step."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(FEATURES, 1), nn.Linear(FEATURES, 1)])

    def forward(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        return self.branches[(dist.get_rank() + step) % 2](batch)


class Embedding(nn.Module):
    """A table with sparse gradients, which DDP reduces as COO tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=True)
        self.head = nn.Linear(8, 1)

    def forward(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        return self.head(self.table(batch[:, 0].abs().mul(10).long() % 50))


def batch_of(step: int) -> torch.Tensor:
    torch.manual_seed(100 * step + dist.get_rank())
    return torch.randn(BATCH, FEATURES)


def train(
    model_type: type[nn.Module],
    group: Any,
    *,
    steps: int = STEPS,
    prepare: Callable[[Any, Any], Any] = lambda model, group: model,
    **ddp_options: Any,
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train under DDP on `group`; the losses and the final weights of this rank."""
    torch.manual_seed(1)
    wrapped = DistributedDataParallel(model_type(), process_group=group, **ddp_options)
    model = prepare(wrapped, group)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        loss = model(batch_of(step), step).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.clone() for name, value in wrapped.module.state_dict().items()}
