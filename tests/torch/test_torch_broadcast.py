"""broadcast through the engine: every dtype and layout, to the last bit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from reference import engine_operations

DTYPES = ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float64", "complex64"]
SIZES = [0, 1, 3, 1000, 70_001]


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def broadcast_random_bits(dtype: torch.dtype, size: int) -> None:
    """Random bits include negative zeros, infinities and every kind of NaN."""
    highest = 2 if dtype is torch.bool else 256
    width = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, highest, (size * width,), dtype=torch.uint8)
    mine = bits.clone() if dist.get_rank() == 1 else torch.ones_like(bits)
    tensor = mine.view(dtype)
    before = engine_operations()
    dist.broadcast(tensor, src=1)
    assert engine_operations() == before + 1
    assert bytes_of(tensor).equal(bits)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_arrive_as_they_are(ranks: Ranks, dtype: str, size: int) -> None:
    ranks.run(broadcast_random_bits, getattr(torch, dtype), size)


def views() -> None:
    rank = dist.get_rank()
    expected = torch.arange(9.0).to(torch.int16)
    memory = torch.full((20,), -1, dtype=torch.int16)
    # Strided, off a word's boundary, whole: each rank another layout.
    tensor = [memory[::2][:9], memory[1:10], torch.empty(9, dtype=torch.int16)][rank]
    tensor.copy_(expected if rank == 0 else torch.zeros(9))
    dist.broadcast(tensor, src=0)
    assert tensor.equal(expected)
    assert memory[19] == -1
    conjugate = torch.tensor([1 + 2j, 3 - 1j]).conj()
    dist.group.WORLD.broadcast(conjugate, 0).wait()
    assert conjugate.resolve_conj().equal(torch.tensor([1 - 2j, 3 + 1j]))


def test_views(ranks: Ranks) -> None:
    ranks.run(views)


def parameters() -> None:
    values = torch.full((6,), float(dist.get_rank()))
    for data in (values, values[::2]):
        parameter = torch.nn.Parameter(data)
        dist.broadcast(parameter, src=2)
        assert parameter.eq(2).all()
        dist.all_reduce(parameter)
        assert parameter.eq(2 * dist.get_world_size()).all()
        values.fill_(float(dist.get_rank()))


def test_parameters(ranks: Ranks) -> None:
    ranks.run(parameters)


def overloads() -> None:
    group: Any = dist.group.WORLD
    options = dist.BroadcastOptions()
    options.rootRank = 1
    calls = [
        lambda t: group.broadcast(t, 1),
        lambda t: group.broadcast(t, root=1, timeout=timedelta(seconds=9)),
        lambda t: group.broadcast([t], options),
        lambda t: group.broadcast([t], opts=options),
    ]
    for call in calls:
        tensor = torch.full((3,), dist.get_rank())
        call(tensor).wait()
        assert tensor.eq(1).all()


def test_overloads_of_the_process_group(ranks: Ranks) -> None:
    ranks.run(overloads)


def in_a_subgroup() -> None:
    group = dist.new_group([1, 2])
    tensor = torch.full((3,), dist.get_rank())
    if dist.get_rank() != 0:
        work = dist.broadcast(tensor, src=2, group=group, async_op=True)
        assert work is not None
        assert work.get_future().wait()[0] is tensor
        assert tensor.eq(2).all()


def test_subgroup(ranks: Ranks) -> None:
    ranks.run(in_a_subgroup)
