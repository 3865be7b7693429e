"""Coalesced collectives: torch's manager with and without a device, and the list forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from reference import engine_operations
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

CPU = torch.device("cpu")


def reduce_all(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor)


def gather_all(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        dist.all_gather_into_tensor(tensor, torch.ones(tensor.numel() // dist.get_world_size()))


def scatter_all(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        dist.reduce_scatter_tensor(tensor, torch.ones(tensor.numel() * dist.get_world_size()))


def coalesce(
    calls: Callable[[list[torch.Tensor]], None], device: torch.device | None, asynchronous: bool
) -> None:
    expected = [torch.ones(6), torch.ones(12)]
    calls(expected)
    tensors = [torch.ones(6), torch.ones(12)]
    with _coalescing_manager(device=device, async_ops=asynchronous) as manager:
        calls(tensors)
    if asynchronous:
        manager.wait()
    torch.testing.assert_close(tensors, expected)
    # Where the manager goes wrong, every later call on the group silently does nothing.
    probe = torch.ones(1)
    dist.all_reduce(probe)
    assert probe.item() == dist.get_world_size()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("device", [None, CPU])
@pytest.mark.parametrize("calls", [reduce_all, gather_all, scatter_all])
def test_manager(
    ranks: Ranks,
    calls: Callable[[list[torch.Tensor]], None],
    device: torch.device | None,
    asynchronous: bool,
) -> None:
    ranks.run(coalesce, calls, device, asynchronous)


def coalesce_in_a_callback() -> None:
    tensors = [torch.ones(6), torch.ones(12)]

    def callback(done: Any) -> None:
        with _coalescing_manager(device=CPU, async_ops=True) as manager:
            reduce_all(tensors)
        manager.wait()

    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work is not None
    work.get_future().then(callback).wait()
    assert all(tensor.eq(dist.get_world_size()).all() for tensor in tensors)


def test_manager_in_a_callback(ranks: Ranks) -> None:
    ranks.run(coalesce_in_a_callback)


def list_forms() -> None:
    size, before = float(dist.get_world_size()), engine_operations()
    tensors = [torch.ones(3), torch.ones(4, dtype=torch.float64), torch.zeros(0)]
    work = dist.group.WORLD.allreduce_coalesced(tensors)
    assert work.get_future().wait()[0] is tensors[0]
    assert work.is_success()
    assert engine_operations() == before + 3
    assert tensors[0].eq(size).all()
    assert tensors[1].eq(size).all()

    bytes_ = [torch.ones(3, dtype=torch.uint8), torch.ones(4, dtype=torch.uint8)]
    dist.group.WORLD.allreduce_coalesced(bytes_).wait()
    assert all(tensor.eq(size).all() for tensor in bytes_)


def test_all_reduce_coalesced(ranks: Ranks) -> None:
    ranks.run(list_forms)


def functional_forms() -> None:
    group, size = dist.group.WORLD, float(dist.get_world_size())
    ones = torch.ones(6)
    assert functional.all_reduce(ones, "sum", group).eq(size).all()
    assert functional.all_gather_tensor(ones, 0, group).shape == (18,)
    assert functional.reduce_scatter_tensor(ones, "sum", 0, group).eq(size).all()
    assert functional.broadcast(ones, 0, group).eq(1).all()
    assert functional.all_to_all_single(ones, None, None, group).eq(1).all()
    for tensor in functional.all_reduce_coalesced([ones, ones], "avg", group):
        assert tensor.eq(1).all()
    for tensor in functional.all_gather_into_tensor_coalesced([ones, ones], group):
        assert tensor.shape == (18,)
    scattered = functional.reduce_scatter_tensor_coalesced([ones, ones], "sum", [0, 0], group)
    for tensor in scattered:
        assert tensor.eq(size).all()


def test_functional_collectives(ranks: Ranks) -> None:
    ranks.run(functional_forms)
