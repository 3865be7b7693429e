"""Sends and receives of tensors on devices: between two ranks, whatever the others are at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import DEVICES, assert_same_bits, group_in_mode
from nccl_double import nccl_of_gloo, serves
from ranks import Ranks

import sparsewire
from sparsewire.device.accelerator import ACCELERATORS
from sparsewire.torch.backend import member_of
from sparsewire.torch.calls.first_calls import FirstCalls
from sparsewire.torch.device.device_identities import DeviceIdentities

LIMIT = timedelta(seconds=15)
MODES = ["engine", "auto"]


@contextlib.contextmanager
def group_with_nccl(mode: str, shares: bool, timeout: timedelta = LIMIT) -> Iterator[Any]:
    """A group whose ranks have NCCL, and one device or one each."""
    name = "one for all" if shares else str(dist.get_rank())
    with nccl_of_gloo(), cpu_as_device(name), group_in_mode(mode, timeout=timeout) as group:
        yield group


def synchronize() -> None:
    """What the program's stream has got is in its tensors then."""
    accelerator = ACCELERATORS["cpu"]
    accelerator.record(accelerator.current(torch.device("cpu"))).synchronize()


def of(rank: int) -> torch.Tensor:
    return torch.arange(1001.0) + rank


def two_of_three(mode: str, shares: bool) -> None:
    """The third rank comes to nothing before they are done."""
    rank = dist.get_rank()
    with group_with_nccl(mode, shares) as group:
        tensor = of(rank)
        if rank == 0:
            dist.send(tensor, 1, group=group)
        if rank == 1:
            assert dist.recv(tensor, 0, group=group) == 0
            synchronize()
            assert_same_bits(tensor, of(0))
        assert serves(member_of(group)) == (rank < 2 and not shares)
        dist.distributed_c10d._store_based_barrier(
            rank, group.get_group_store(), "both", dist.get_world_size(), LIMIT
        )


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_two_of_three_ranks(ranks: Ranks, mode: str, shares: bool) -> None:
    ranks.run(two_of_three, mode, shares)


def exchange(mode: str, shares: bool) -> None:
    rank = dist.get_rank()
    with group_with_nccl(mode, shares) as group:
        if rank < 2:
            got = torch.zeros(1001)
            calls = [
                dist.P2POp(dist.isend, of(rank), 1 - rank, group),
                dist.P2POp(dist.irecv, got, 1 - rank, group),
            ]
            for work in dist.batch_isend_irecv(calls):
                work.wait()
            synchronize()
            assert_same_bits(got, of(1 - rank))
        # And a collective of all, whichever backend serves it.
        everyones = [torch.zeros(1001) for _ in range(dist.get_world_size())]
        dist.all_gather(everyones, of(rank), group=group)
        synchronize()
        for each, tensor in enumerate(everyones):
            assert_same_bits(tensor, of(each))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_of_two_of_three_ranks(ranks: Ranks, mode: str, shares: bool) -> None:
    ranks.run(exchange, mode, shares)


def nobody_receives() -> None:
    with group_with_nccl("engine", True, timedelta(seconds=1)) as group:
        if dist.get_rank() == 0:
            with pytest.raises(sparsewire.Timeout, match=r"rank 1 made no call .* in 1 s"):
                dist.send(of(0), 1, group=group)


def test_a_rank_that_does_not_come_is_named(ranks: Ranks) -> None:
    ranks.run(nobody_receives)


def test_from_any_rank_asks_nobody() -> None:
    store, device = dist.HashStore(), torch.device("cpu", 0)
    with cpu_as_device("mine"):
        mine = DeviceIdentities(store, 0, 3, lambda: timedelta(seconds=1))
        assert not mine.are_shared(device, ())


def test_the_device_is_that_of_the_tensor() -> None:
    store, devices = dist.HashStore(), [torch.device("cpu", index) for index in (0, 1, 0)]
    ranks = [DeviceIdentities(store, rank, 3, lambda: LIMIT) for rank in range(3)]
    with cpu_as_device() as double, patch.object(double, "identity", str):
        for rank, device in zip(ranks, devices, strict=True):
            assert not rank.are_shared(device, ())
        assert not ranks[0].are_shared(devices[0], (1,))
        assert ranks[0].are_shared(devices[0], (2,))
        assert ranks[1].are_shared(devices[1])


def through_gloo(device: str) -> None:
    """Over host memory alone, in any layout, behind what the caller's stream has to do."""
    rank, given = dist.get_rank(), []
    start = FirstCalls.start

    def noting(self: Any, call: Any, tensors: list[torch.Tensor], *others: Any) -> Any:
        given.extend(tensors)
        return start(self, call, tensors, *others)

    whole = torch.zeros(50, 40, device=device)
    tensor = whole.t() if rank else whole[:40]
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(FirstCalls, "start", noting))
        if device == "cpu":
            double = stack.enter_context(cpu_as_device())
            double.caller.put(lambda: whole.fill_(rank + 1.0))
        else:
            torch.cuda._sleep(10**8)
            whole.fill_(rank + 1.0)
        group = stack.enter_context(group_in_mode("engine"))
        for turn in range(3):  # At first, and when the pair is connected.
            if rank == 0:
                dist.send(tensor + turn if turn else tensor, 1, group=group)
            if rank == 1:
                part = tensor[:, :40]
                work: Any = dist.irecv(part, 0, group=group)
                assert work.get_future().wait() if turn == 2 else work.wait()
                if device == "cpu":
                    synchronize()
                assert part.eq(1.0 + turn).all()
                assert tensor[:, 40:].eq(2).all()
        assert len(given) == 3 * (rank < 2)
        for each in given:
            assert each.device.type == "cpu"
            storage = each.untyped_storage().data_ptr()
            assert storage != whole.untyped_storage().data_ptr()
        dist.barrier()


@pytest.mark.parametrize("device", DEVICES)
def test_gloo_gets_host_memory(ranks: Ranks, device: str) -> None:
    ranks.run(through_gloo, device)
