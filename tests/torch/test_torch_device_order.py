"""What is read, written and given back when: streams, futures, and many collectives in flight."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import (
    DEVICES,
    always,
    assert_nothing_lent,
    assert_same_bits,
    double,
    group_in_mode,
    staged_group,
    staging,
    synchronize,
)
from ranks import Ranks

from sparsewire.device.choice import PERIOD, SMALLEST
from sparsewire.device.path_cost import Path
from sparsewire.errors import Timeout

PATHS = [Path.PACKED, Path.DENSE]
COUNT = 3 * SMALLEST + 5


def one_block(place: int, count: int = COUNT) -> torch.Tensor:
    tensor = torch.zeros(count)
    tensor[place * 256 : place * 256 + 7] = dist.get_rank() + 1.0
    return tensor


def total(place: int) -> torch.Tensor:
    """The sum over all ranks of `one_block`."""
    size = dist.get_world_size()
    return one_block(place) / (dist.get_rank() + 1) * (size * (size + 1) / 2)


def reads_late(path: Path, sparse: bool) -> None:
    """What the caller's stream has still to write is reduced."""
    with always(path), staged_group("cpu") as group:
        dist.all_reduce(torch.zeros(COUNT), group=group)  # Connects.
        tensor = torch.full((COUNT,), 99.0)
        if sparse:
            tensor = tensor[:-5].view(-1, 4).to_sparse(1)
        values = tensor._values() if sparse else tensor
        double().caller.put(lambda: values.fill_(dist.get_rank() + 1.0))
        dist.all_reduce(tensor, group=group)
        size = dist.get_world_size()
        assert tensor._values().eq(size * (size + 1) / 2).all() if sparse else True
        assert sparse or tensor.eq(size * (size + 1) / 2).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sparse", [False, True])
def test_reads_after_the_callers_stream(ranks: Ranks, path: Path, sparse: bool) -> None:
    ranks.run(reads_late, path, sparse)


def holds(path: Path) -> None:
    """Streams of ours keep the memory of what they use and did not make."""
    with always(path), staged_group("cpu") as group:
        dist.all_reduce(torch.ones(1), group=group)
        double().held.clear()
        plain, strided = torch.ones(COUNT), torch.ones(2 * COUNT)[::2]
        sparse = torch.ones(10, 4).to_sparse(1)
        parts = [sparse._indices().data_ptr(), sparse._values().data_ptr()]
        for tensor in (plain, strided, sparse):
            dist.all_reduce(tensor, group=group)
        held = double().held
        ours = {pointer for pointer, stream in held if stream is not double().caller}
        assert {plain.data_ptr(), strided.data_ptr(), *parts} <= ours
        for pointer in (plain.data_ptr(), strided.data_ptr(), *parts):
            assert len({id(stream) for each, stream in held if each == pointer}) == 2
        # Of what is not in one piece, a copy is read by the one stream and written by the other.
        known = {plain.data_ptr(), strided.data_ptr(), *parts}
        assert ours - known
        # What it gives to the caller, the caller's stream keeps.
        theirs = {pointer for pointer, stream in held if stream is double().caller}
        assert {sparse._indices().data_ptr(), sparse._values().data_ptr()} <= theirs


@pytest.mark.parametrize("path", PATHS)
def test_memory_is_held(ranks: Ranks, path: Path) -> None:
    ranks.run(holds, path)


def returns_at_once(device: str) -> None:
    with staged_group(device) as group:
        dist.all_reduce(torch.ones(1, device=device), group=group)
        tensor = one_block(dist.get_rank()).to(device)
        if dist.get_rank() == 0:
            work = dist.all_reduce(tensor, group=group, async_op=True)
            assert not work.is_completed()
            assert work.exception() is None
            with pytest.raises(Timeout, match="has not ended after"):
                work.wait(timedelta(milliseconds=50))
            dist.barrier()  # The others go on only now.
        else:
            dist.barrier()
            work = dist.all_reduce(tensor, group=group, async_op=True)
        work.wait()
        while not work.is_completed():  # The device may not have come to the result yet.
            time.sleep(0.001)
        assert work.is_success()
        assert tensor[:7].eq(1).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_call_returns_at_once(ranks: Ranks, device: str) -> None:
    ranks.run(returns_at_once, device)


def many_in_flight(device: str, path: Path) -> None:
    """More than the pool may lend at once, other collectives between, and waits in any order."""
    with always(path), staged_group(device) as group:
        for way in (staging(device).down, staging(device).up):
            way.pool._limit = 4 << 20
        before = [one_block(i % 700) for i in range(2 * PERIOD)]
        tensors = [tensor.to(device) for tensor in before]
        works = []
        for place, tensor in enumerate(tensors):
            works.append(dist.all_reduce(tensor, group=group, async_op=True))
            if place % 8 == dist.get_rank():  # Somewhere else on each rank.
                dist.get_rank(group)
                torch.ones(1000, device=device).sum().item()
            if place % 8 == 0:
                dist.all_reduce(torch.ones(3))
        for work in reversed(works):
            work.wait()
        for place, tensor in enumerate(tensors):
            assert_same_bits(tensor, total(place % 700))


def many_sparse_in_flight(device: str) -> None:
    with staged_group(device) as group:
        size = dist.get_world_size()
        tensors = [torch.eye(50)[: 10 + i].mul(i + 1).to_sparse().to(device) for i in range(30)]
        works = [dist.all_reduce(each, group=group, async_op=True) for each in tensors]
        for place, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
            work.wait()
            expected = torch.eye(50)[: 10 + place] * (place + 1) * size
            assert_same_bits(tensor.to_dense(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_many_sparse_tensors_in_flight(ranks: Ranks, device: str) -> None:
    ranks.run(many_sparse_in_flight, device)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", DEVICES)
def test_many_in_flight(ranks: Ranks, device: str, path: Path) -> None:
    ranks.run(many_in_flight, device, path)


def beside_the_host(device: str) -> None:
    """Collectives on host memory of the same group are in another order with those on devices."""
    with group_in_mode("engine") as group:
        if device == "cuda":
            on_host, on_device = torch.ones(COUNT), one_block(1).to(device)
            dist.all_reduce(torch.ones(1, device=device), group=group)
            if dist.get_rank() == 0:
                time.sleep(0.05)
            works = [dist.all_reduce(on_device, group=group, async_op=True)]
            works += [dist.all_reduce(on_host, group=group, async_op=True)]
        else:
            on_host, on_device = torch.ones(COUNT), one_block(1)
            with cpu_as_device():
                works = [dist.all_reduce(on_device, group=group, async_op=True)]
            works += [dist.all_reduce(on_host, group=group, async_op=True)]
        for work in works:
            work.wait()
        assert on_host.eq(dist.get_world_size()).all()
        assert_same_bits(on_device, total(1))


@pytest.mark.parametrize("device", DEVICES)
def test_beside_tensors_on_the_host(ranks: Ranks, device: str) -> None:
    ranks.run(beside_the_host, device)


def futures(device: str) -> None:
    with staged_group(device) as group:
        tensor = one_block(2).to(device)
        future: Any = dist.all_reduce(tensor, group=group, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        assert_same_bits(doubled.wait(), total(2) * 2)
        assert_same_bits(future.wait()[0], total(2))


@pytest.mark.parametrize("device", DEVICES)
def test_futures(ranks: Ranks, device: str) -> None:
    ranks.run(futures, device)


def callbacks_that_reduce(device: str) -> None:
    """As PowerSGD's do; they have a group of their own, and so a path."""
    with staged_group(device) as group:

        def again(done: Any) -> torch.Tensor:
            tensor: torch.Tensor = done.value()[0]
            dist.all_reduce(tensor, group=group)
            return tensor

        work: Any = dist.all_reduce(one_block(2).to(device), group=group, async_op=True)
        assert_same_bits(work.get_future().then(again).wait(), total(2) * dist.get_world_size())


@pytest.mark.parametrize("device", DEVICES)
def test_callbacks_that_reduce(ranks: Ranks, device: str) -> None:
    ranks.run(callbacks_that_reduce, device)


def forgotten(device: str) -> None:
    """Works that nobody waits for end, too, and give the memory back."""
    with staged_group(device) as group:
        tensors = [one_block(i).to(device) for i in range(5)]
        for tensor in tensors:
            dist.all_reduce(tensor, group=group, async_op=True)
        del tensor
        dist.all_reduce(torch.ones(1, device=device), group=group)
        assert_nothing_lent(device)
        synchronize(device)
        for place, tensor in enumerate(tensors):
            assert_same_bits(tensor, total(place))


@pytest.mark.parametrize("device", DEVICES)
def test_works_that_nobody_waits_for(ranks: Ranks, device: str) -> None:
    ranks.run(forgotten, device)
