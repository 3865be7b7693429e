"""all_reduce through torch.distributed: every dtype, operation and layout, compared with gloo."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from reference import assert_like_gloo, engine_operations, gloo_group

ENGINE_DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
OPS = ["SUM", "MIN", "MAX", "PRODUCT"]
SIZES = [0, 1, 7, 4096, 200_001]


def small_integers(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Mostly zeros, different on each rank, and exact in every dtype and order of summation."""
    torch.manual_seed(dist.get_rank())
    values = torch.randint(-2, 3, (size,))
    values[torch.rand(size) < 0.7] = 0
    return values.to(dtype)


def reduce_like_gloo(dtype: torch.dtype, op: str, size: int) -> None:
    before = engine_operations()

    def body(group: Any) -> torch.Tensor:
        tensor = small_integers(size, dtype)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op), group=group)
        return tensor

    assert_like_gloo(body)
    assert engine_operations() == before + 1


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ENGINE_DTYPES)
def test_dtypes_and_operations(ranks: Ranks, dtype: str, op: str) -> None:
    ranks.run(reduce_like_gloo, getattr(torch, dtype), op, 1000)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(ranks: Ranks, size: int) -> None:
    ranks.run(reduce_like_gloo, torch.float32, "SUM", size)


def average(dtype: torch.dtype) -> None:
    tensor = small_integers(1000, dtype)
    total = tensor.to(torch.float64, copy=True)
    dist.all_reduce(total, group=gloo_group())
    before = engine_operations()
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert engine_operations() == before + 1
    torch.testing.assert_close(tensor, (total / dist.get_world_size()).to(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_average(ranks: Ranks, dtype: str) -> None:
    ranks.run(average, getattr(torch, dtype))


def inner_dtypes() -> None:
    before = engine_operations()
    for dtype in (torch.uint8, torch.int8, torch.bool):
        assert_like_gloo(lambda group, dtype=dtype: reduced(torch.ones(5, dtype=dtype), group))
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(5, dtype=torch.int16))
    assert engine_operations() == before


def reduced(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    dist.all_reduce(tensor, group=group)
    return tensor


def test_other_dtypes_go_to_gloo(ranks: Ranks) -> None:
    ranks.run(inner_dtypes)


def complex_numbers() -> None:
    assert_like_gloo(lambda group: reduced(torch.full((4,), 1 + 2j), group))


def test_complex_numbers(ranks: Ranks) -> None:
    ranks.run(complex_numbers)


def strided_on_one_rank() -> None:
    """Layouts may differ between ranks, so the choice of path must not depend on them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    memory = torch.zeros(24)
    view = memory[::2] if rank == 1 else memory[:12]
    view += torch.arange(12.0) + rank
    dist.all_reduce(view)
    torch.testing.assert_close(view, size * torch.arange(12.0) + sum(range(size)))
    if rank == 1:
        assert memory[1::2].eq(0).all()

    transposed = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(transposed)
    torch.testing.assert_close(transposed, size * torch.arange(6.0).reshape(2, 3).t())


def test_views(ranks: Ranks) -> None:
    ranks.run(strided_on_one_rank)


def work_in_all_forms() -> None:
    size = float(dist.get_world_size())
    tensor = torch.ones(100)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait(timedelta(seconds=20)) is True
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0] is tensor
    work.synchronize()
    assert tensor.eq(size).all()
    assert work.get_future() is work.get_future()
    assert work.get_future().wait()[0] is tensor


def test_work(ranks: Ranks) -> None:
    ranks.run(work_in_all_forms)


def overloads() -> None:
    group: Any = dist.group.WORLD
    size = dist.get_world_size()
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    calls = [
        lambda t: group.allreduce(t),
        lambda t: group.allreduce([t]),
        lambda t: group.allreduce(t, dist.ReduceOp.SUM),
        lambda t: group.allreduce([t], op=dist.ReduceOp.SUM, timeout=timedelta(seconds=9)),
        lambda t: group.allreduce([t], options),
        lambda t: group.allreduce([t], opts=options),
    ]
    for call, expected in zip(calls, [size] * 4 + [1] * 2, strict=True):
        tensor = torch.ones(3)
        call(tensor).wait()
        assert tensor.eq(expected).all()


def test_overloads_of_the_process_group(ranks: Ranks) -> None:
    ranks.run(overloads)


def several_tensors() -> None:
    def body(group: Any) -> list[torch.Tensor]:
        tensors = [small_integers(10), 2 * small_integers(10)]
        group.allreduce(tensors).wait()
        return tensors

    assert_like_gloo(body)


def test_several_tensors_in_one_call_are_summed_too(ranks: Ranks) -> None:
    ranks.run(several_tensors)


def forget_and_reuse_memory() -> None:
    for _ in range(50):
        dist.all_reduce(torch.ones(50_000), async_op=True)
        torch.zeros(50_000)
    probe = torch.ones(3)
    dist.all_reduce(probe)
    assert probe.eq(dist.get_world_size()).all()


def test_forgotten_works_keep_their_memory(ranks: Ranks) -> None:
    ranks.run(forget_and_reuse_memory)
