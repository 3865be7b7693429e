"""Streams that are late, in any order that events allow: nobody waits for too much or too little.

SPARSEWIRE_TESTS_SEEDS says how many orders are tried.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import (
    always,
    assert_nothing_lent,
    assert_same_bits,
    double,
    group_in_mode,
    staged_group,
    staging,
)
from ranks import Ranks
from support import run_ranks

import sparsewire
from sparsewire.device.accelerator import Cuda
from sparsewire.device.choice import SMALLEST
from sparsewire.device.copies import to_device, to_host
from sparsewire.device.path_cost import Path
from sparsewire.torch.calls.futures import Callbacks, Future

PATHS = [Path.PACKED, Path.DENSE]
SEEDS = int(os.environ.get("SPARSEWIRE_TESTS_SEEDS", "4"))
COUNT = 3 * SMALLEST + 5
LIMIT = timedelta(seconds=10)


@contextlib.contextmanager
def late_group(path: Path) -> Iterator[Any]:
    """A group that is connected, and a program that does not wait for its own stream."""
    with always(path), staged_group("cpu") as group:
        dist.all_reduce(torch.zeros(COUNT), group=group)
        double().waits = False
        yield group


@contextlib.contextmanager
def second_group() -> Iterator[Any]:
    double().waits = True
    with group_in_mode("engine") as group:
        dist.all_reduce(torch.zeros(COUNT), group=group)
        double().waits = False
        yield group


def started(tensor: torch.Tensor, group: Any) -> Any:
    return dist.all_reduce(tensor, group=group, async_op=True)


def soon(work: Callable[[], Any], may_run: Callable[[], bool] = lambda: True) -> None:
    """Put it into the program's stream."""
    double().caller.put(work, may_run)


def block_until(is_open: Callable[[], bool]) -> None:
    """Have the program's stream wait, and not the host."""
    soon(lambda: None, is_open)


def has_ended(future: Any) -> bool:
    deadline = time.monotonic() + LIMIT.total_seconds()
    while not future.done() and time.monotonic() < deadline:
        time.sleep(0.002)
    done: bool = future.done()
    return done


def finish(works: Sequence[Any]) -> None:
    for work in works:
        work.wait(LIMIT)
    double().caller.synchronize()


def mine() -> float:
    return dist.get_rank() + 1.0


def total() -> float:
    size = dist.get_world_size()
    return size * (size + 1) / 2


def in_turn(first: Callable[[], list[Any]], is_first: bool) -> list[Any]:
    """What `first` starts, on the first rank before all others."""
    works = first() if is_first else []
    dist.barrier()
    return works or first()


def overlap(path: Path) -> None:
    """What was called first comes back while the program's stream is not at the second call."""
    is_first, gate = dist.get_rank() == 0, threading.Event()
    with late_group(path) as group:
        tensors = [torch.zeros(COUNT) for _ in range(2)]

        def both() -> list[Any]:
            works = []
            for tensor in tensors:
                soon(lambda tensor=tensor: tensor.fill_(mine()))
                works.append(started(tensor, group))
                block_until(lambda: not is_first or gate.is_set())
            return works

        works = in_turn(both, is_first)
        try:
            assert has_ended(works[0].get_future())
        finally:
            gate.set()
        finish(works)
        assert all(tensor.eq(total()).all() for tensor in tensors)


@pytest.mark.parametrize("path", PATHS)
def test_results_come_back_beside_later_work(ranks: Ranks, path: Path) -> None:
    ranks.run(overlap, path)


def blocked(path: Path) -> None:
    """As by `block_current_stream`."""
    with late_group(path) as group:
        tensors = [torch.full((COUNT,), mine()) for _ in range(3)]

        def all_of_them() -> list[Any]:
            works = []
            for tensor in tensors:
                works.append(started(tensor, group))
                block_until(works[-1].get_future().done)
            return works

        works = in_turn(all_of_them, dist.get_rank() == 0)
        assert has_ended(works[-1].get_future())
        finish(works)
        assert all(tensor.eq(total()).all() for tensor in tensors)


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_that_waits_for_a_collective(ranks: Ranks, path: Path) -> None:
    ranks.run(blocked, path)


def blocked_beside(path: Path) -> None:
    gate = threading.Event()
    with late_group(path) as group, second_group() as other:
        one, two = torch.full((COUNT,), mine()), torch.full((COUNT,), mine())
        block_until(gate.is_set)
        works = [started(one, group)]
        block_until(works[0].get_future().done)
        works.append(started(two, other))
        gate.set()
        assert has_ended(works[0].get_future())
        finish(works)
        assert one.eq(total()).all()
        assert two.eq(total()).all()


@pytest.mark.parametrize("path", PATHS)
def test_groups_do_not_hold_each_other_up(ranks: Ranks, path: Path) -> None:
    ranks.run(blocked_beside, path)


def one_behind_another(path: Path) -> None:
    size = dist.get_world_size()
    with late_group(path) as group:
        for seed in [None, *range(SEEDS)]:
            double().shuffle(seed)
            tensor = torch.zeros(COUNT)
            soon(lambda tensor=tensor: tensor.fill_(mine()))
            half = tensor[: COUNT // 2]
            finish([started(each, group) for each in (tensor, half, tensor)])
            assert half.eq(total() * size * size).all()
            assert tensor[COUNT // 2 :].eq(total() * size).all()


@pytest.mark.parametrize("path", PATHS)
def test_calls_on_one_tensor_keep_their_order(ranks: Ranks, path: Path) -> None:
    ranks.run(one_behind_another, path)


def sparse_behind_another() -> None:
    size = dist.get_world_size()
    with late_group(Path.DENSE) as group:
        for seed in [None, *range(SEEDS)]:
            double().shuffle(seed)
            tensor = torch.eye(60).mul(mine()).to_sparse()
            finish([started(tensor, group) for _ in range(3)])
            assert_same_bits(tensor.to_dense(), torch.eye(60) * total() * size * size)


def test_calls_on_one_sparse_tensor_keep_their_order(ranks: Ranks) -> None:
    ranks.run(sparse_behind_another)


def small_pools() -> None:
    for way in (staging("cpu").down, staging("cpu").up):
        way.pool._limit = 1 << 20


def opposite(kind: str) -> None:
    """One tensor fills the pool, and each group's comes first on some rank."""
    path = Path.PACKED if kind == "packed" else Path.DENSE
    with late_group(path) as group, second_group() as other:
        small_pools()
        tensors = [torch.full((COUNT,), mine()) for _ in range(2)]
        if kind == "sparse":
            tensors = [tensor[:-5].view(-1, 4).to_sparse(1) for tensor in tensors]
        pairs = list(zip(tensors, [group, other], strict=True))
        finish(one_by_one([partial(started, *pair) for pair in pairs]))
        for tensor in tensors:
            assert tensor.to_dense().eq(total()).all()


def one_by_one(calls: list[Callable[[], Any]]) -> list[Any]:
    """The second call once the first has got its memory, or has ended with the others' help."""
    works: list[Any] = []
    for call in calls if dist.get_rank() == 0 else calls[::-1]:
        while works and not (staging("cpu").down.pool.lent_bytes or works[0].is_completed()):
            time.sleep(0.001)
        works.append(call())
    return works


@pytest.mark.parametrize("kind", ["packed", "dense", "sparse"])
def test_two_groups_in_opposite_order(ranks: Ranks, kind: str) -> None:
    ranks.run(opposite, kind)


def communicators_in_opposite_order() -> None:
    with sparsewire.init() as one, sparsewire.init() as other, cpu_as_device():
        for comm in (one, other):
            comm.all_reduce(torch.zeros(COUNT))
        small_pools()
        tensors = [torch.full((COUNT,), one.rank + 1.0) for _ in range(2)]
        pairs = [(one, tensors[0]), (other, tensors[1])]
        works = [
            comm.all_reduce(tensor, "sum", async_op=True, timeout=10)
            for comm, tensor in (pairs if one.rank == 0 else pairs[::-1])
        ]
        for work in works:
            work.wait(10)
        assert all(tensor.eq(3).all() for tensor in tensors)
        assert_nothing_lent("cpu")


def test_two_communicators_in_opposite_order() -> None:
    run_ranks(2, communicators_in_opposite_order)


def starts(kind: str, group: Any) -> Any:
    """A collective that uses memory for both ways on rank 1."""
    if kind == "broadcast":
        return dist.broadcast(torch.ones(COUNT), 0, group=group, async_op=True)
    tensor = torch.eye(50).to_sparse() if kind == "sparse" else torch.ones(COUNT)
    return started(tensor, group)


def full_after(uses: int, kind: str) -> bool:
    """Whether rank 1 got through before its device was full."""
    path = Path.DENSE if kind == "dense" else Path.PACKED
    with always(path), staged_group("cpu") as group:
        dist.all_reduce(torch.zeros(COUNT), group=group)
        dist.barrier()
        if dist.get_rank() == 1:
            double().failing, double().uses_until_failure = MemoryError("full"), uses
        error: Exception | None = None
        try:
            starts(kind, group).wait(LIMIT)
        except sparsewire.Error as caught:
            error = caught
            assert "rank 1 cannot stage a tensor on its device: full" in str(error)
        assert_nothing_lent("cpu")
        double().failing = None
        dist.barrier()
        return error is None


def full_anywhere(kind: str) -> None:
    """Wherever it fails, memory comes back, and the error is the first."""
    results = []
    while not (results and results[-1]):
        got_through = torch.tensor(full_after(len(results), kind))
        dist.broadcast(got_through, 1)
        results.append(bool(got_through))
    assert len(results) > 2


@pytest.mark.parametrize("kind", ["packed", "dense", "sparse", "broadcast"])
def test_a_device_that_is_full_at_any_point(ranks: Ranks, kind: str) -> None:
    ranks.run(full_anywhere, kind)


@pytest.mark.parametrize("copy", [to_host, lambda tensor: to_device(tensor, torch.ones(COUNT))])
def test_copies_that_fail_give_memory_back(copy: Callable[[torch.Tensor], Any]) -> None:
    with cpu_as_device() as accelerator:
        accelerator.failing = MemoryError("full")
        with pytest.raises(MemoryError):
            copy(torch.ones(COUNT))
        assert_nothing_lent("cpu")


def unlike(kind: str) -> torch.Tensor:
    """Another tensor on each rank, which does not go as it lies in memory."""
    rank = dist.get_rank()
    if kind == "odd":
        return torch.full((1001,), 3 + rank, dtype=torch.uint8)
    if kind == "bool":
        return torch.full((1001,), rank == 1)
    numbers = torch.arange(2000.0) + rank
    return numbers[::2] if kind == "strided" else numbers.view(40, 50).t()


def broadcasts(kind: str) -> None:
    with late_group(Path.DENSE) as group:
        for seed in range(10 * SEEDS):
            double().shuffle(seed)
            tensor = unlike(kind)
            ready = tensor.clone()
            tensor.zero_()
            soon(lambda ready=ready, tensor=tensor: tensor.copy_(ready))
            finish([dist.broadcast(tensor, 1, group=group, async_op=True)])
            double().synchronize()
            assert tensor.eq(ready - dist.get_rank() + 1 if kind != "bool" else True).all()


@pytest.mark.parametrize("kind", ["odd", "bool", "strided", "turned"])
def test_broadcast_receivers_do_not_race(ranks: Ranks, kind: str) -> None:
    ranks.run(broadcasts, kind)


def futures_wait_for_the_host_alone() -> None:
    with late_group(Path.DENSE) as group:
        tensor = torch.full((COUNT,), mine())
        future = started(tensor, group).get_future()
        before = double().caller.put_count
        assert has_ended(future)
        assert double().caller.put_count == before
        assert tensor.eq(total()).all()


def test_the_programs_stream_does_not_wait_for_futures(ranks: Ranks) -> None:
    ranks.run(futures_wait_for_the_host_alone)


def test_callbacks_get_memory_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own `wait` has the streams of a thread keep what it is given."""
    said: list[str] = []
    callbacks = Callbacks(0)
    future: Any = Future.of(lambda: 1, callbacks)
    future.wait()
    # Without CUDA, torch makes no future of a device.
    future._devices, of = ["cuda"], Future.of
    monkeypatch.setattr(Future, "of", lambda compute, callbacks, _: of(compute, callbacks))
    monkeypatch.setattr(torch.futures.Future, "wait", lambda self: said.append("kept"))
    end = threading.Event()
    future.then(lambda done: (said.append("called"), end.set()))
    assert end.wait(10)
    assert said == ["kept", "called"]
    callbacks.close()


def test_who_waits_for_cuda_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Recorded:
        def __init__(self, **options: Any) -> None:
            made.append(options)

        def record(self, stream: object) -> None:
            pass

    monkeypatch.setattr(torch.cuda, "Event", Recorded)
    Cuda().record(None)
    assert made == [{"blocking": True}]
