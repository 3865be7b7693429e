"""Replicas as threads of the test's process, and a small model that each trains on its own data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparsewire.torch.outer import StoreMembership

LIMIT_S = 40.0
FEATURES = 6
Task = Callable[[int, StoreMembership], Any]


def together(count: int, task: Task) -> list[Any]:
    """What `task(rank, membership)` returns on each replica; what one raises is raised."""
    results = outcomes(count, task)
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return results


def outcomes(count: int, task: Task) -> list[Any]:
    """As `together`, with the exception in place of what a replica that raised returns."""
    store = dist.HashStore()
    names = names_of(count)
    results: dict[int, Any] = {}

    def live(rank: int) -> None:
        try:
            membership = StoreMembership(store, names[rank], count, grace=1.0, first=names)
            results[rank] = task(rank, membership)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=live, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    stuck = [rank for rank in range(count) if rank not in results]
    assert not stuck, f"replicas {stuck} did not end; the others: {results}"
    return [results[rank] for rank in range(count)]


def names_of(count: int) -> list[str]:
    """The names of the replicas, by rank."""
    return [f"replica-{rank}" for rank in range(count)]


def net(seed: int) -> nn.Module:
    """Layers of odd sizes, with the weights of this seed; made without global generators."""
    model = nn.Sequential(
        nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 5, bias=False), nn.Tanh(), nn.Linear(5, 1)
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model


def loss_of(model: nn.Module, rank: int, step: int) -> Tensor:
    """The loss on this replica's batch of this step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    batch = torch.randn(8, FEATURES, generator=generator)
    wanted = batch.sum(1, keepdim=True).sin() + 0.1 * rank
    loss: Tensor = (model(batch) - wanted).square().mean()
    return loss


def train_step(model: nn.Module, inner: torch.optim.Optimizer, rank: int, step: int) -> None:
    """One inner step."""
    inner.zero_grad()
    loss_of(model, rank, step).backward()
    inner.step()


def flat(model: nn.Module) -> Tensor:
    """All parameters in one vector, a copy in float32."""
    return torch.cat([each.detach().float().reshape(-1) for each in model.parameters()])


def shared(optimizer: Any) -> bytes:
    """The bits of the shared state of all fragments."""
    return b"".join(each.shared.digest() for each in optimizer._state.fragments)
