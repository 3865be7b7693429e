"""Calls inside a graph that is being captured: refused, with a word of what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import DEVICES, always, double, path_of, staged_group
from ranks import Ranks
from support import run_ranks

import sparsewire
from sparsewire.device.choice import SMALLEST
from sparsewire.device.path_cost import Path
from sparsewire.torch.backend import member_of

REFUSED = "a graph is being captured on .*SPARSEWIRE_CUDA=nccl"


@contextlib.contextmanager
def graph(device: str) -> Iterator[None]:
    """What is called here is captured."""
    if device == "cuda":
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            yield
        return
    double().capturing = True
    try:
        yield
    finally:
        double().capturing = False


def refuses(device: str, call: Callable[[], Any]) -> None:
    with pytest.raises(sparsewire.Error, match=REFUSED), graph(device):
        call()


def in_a_group(device: str) -> None:
    with always(Path.PACKED), staged_group(device) as group:
        tensor = torch.ones(2 * SMALLEST, device=device)
        sparse = torch.eye(5, device=device).to_sparse()
        # Nothing is connected from inside a graph.
        refuses(device, lambda: dist.all_reduce(tensor, group=group))
        assert path_of(group) is None
        for _ in range(2):
            dist.all_reduce(tensor, group=group)
            # On one rank alone: the others never hear of it.
            if dist.get_rank() == 0:
                refuses(device, lambda: dist.all_reduce(tensor, group=group))
                refuses(device, lambda: dist.broadcast(tensor, 0, group=group))
                refuses(device, lambda: dist.all_reduce(sparse, group=group))
        assert tensor.eq(dist.get_world_size() ** 2).all()
        send = member_of(group).send_messages
        refuses(device, lambda: send(tensor, lambda _: pytest.fail("it was staged")))


@pytest.mark.parametrize("device", DEVICES)
def test_a_group_refuses(ranks: Ranks, device: str) -> None:
    ranks.run(in_a_group, device)


def sending() -> None:
    with staged_group("cpu") as group:
        refuses("cpu", lambda: dist.send(torch.ones(3), 1 - dist.get_rank() % 2, group=group))


def test_a_send_through_gloo_refuses(ranks: Ranks) -> None:
    ranks.run(sending)


def of_a_communicator() -> None:
    with sparsewire.init() as comm, cpu_as_device():
        tensor, sparse = torch.ones(SMALLEST), torch.eye(5).to_sparse()
        refuses("cpu", lambda: comm.all_reduce(tensor))
        assert comm.all_reduce(tensor).eq(comm.world_size).all()
        refuses("cpu", lambda: comm.all_gather(sparse))


def test_a_communicator_refuses() -> None:
    run_ranks(2, of_a_communicator)
