"""Every collective with tensors that are not plain memory: strided, negated, conjugated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from reference import gloo_group

Tensors = list[torch.Tensor]
Shape = Callable[[torch.Tensor], torch.Tensor]
"""Gives a tensor with the same values in memory of another kind."""
Body = Callable[[Shape, torch.dtype], Tensors]


def strided(values: torch.Tensor) -> torch.Tensor:
    memory = torch.full((2 * len(values),), -7, dtype=values.dtype)
    memory[::2] = values
    return memory[::2]


def negated(values: torch.Tensor) -> torch.Tensor:
    view = torch.complex(values, -values).conj().imag
    assert view.is_neg()
    return view


def negated_in_one_piece(values: torch.Tensor) -> torch.Tensor:
    view = torch._neg_view(-values)
    assert view.is_neg()
    assert view.is_contiguous()
    return view


def conjugated(values: torch.Tensor) -> torch.Tensor:
    view = values.conj().clone().resolve_conj().conj()
    assert view.is_conj()
    return view


FORMS = [
    (strided, torch.float32),
    (strided, torch.uint8),
    (negated, torch.float32),
    (negated_in_one_piece, torch.float32),
    (negated_in_one_piece, torch.int8),
    (conjugated, torch.complex64),
]


def group() -> Any:
    return dist.group.WORLD


def mine(dtype: torch.dtype, times: int = 1) -> torch.Tensor:
    values = torch.arange(1, 1 + 4 * times).to(dtype) + dist.get_rank()
    return values * (1 + 2j) if dtype.is_complex else values


def empty(dtype: torch.dtype, times: int = 1) -> torch.Tensor:
    return torch.full((4 * times,), 9, dtype=dtype)


def world() -> int:
    return dist.get_world_size()


def all_reduce(shape: Shape, dtype: torch.dtype) -> Tensors:
    tensor = shape(mine(dtype))
    group().allreduce([tensor]).wait()
    return [tensor]


def all_reduce_future(shape: Shape, dtype: torch.dtype) -> Tensors:
    tensor = shape(mine(dtype))
    future = group().allreduce([tensor]).get_future()
    assert future.wait()[0] is tensor
    return [tensor]


def all_reduce_coalesced(shape: Shape, dtype: torch.dtype) -> Tensors:
    tensors = [shape(mine(dtype)), mine(dtype), shape(2 * mine(dtype))]
    group().allreduce_coalesced(tensors).wait()
    return tensors


def all_reduce_in_a_manager(shape: Shape, dtype: torch.dtype) -> Tensors:
    tensors = [shape(mine(dtype)), mine(dtype), shape(2 * mine(dtype))]
    with dist._coalescing_manager():
        for tensor in tensors:
            group().allreduce([tensor]).wait()
    return tensors


def broadcast(shape: Shape, dtype: torch.dtype) -> Tensors:
    tensor = shape(mine(dtype))
    group().broadcast(tensor, 1).wait()
    return [tensor]


def reduce(shape: Shape, dtype: torch.dtype) -> Tensors:
    tensor = shape(mine(dtype))
    options = dist.ReduceOptions()
    options.rootRank = 1
    group().reduce([tensor], options).wait()
    return [tensor] if dist.get_rank() == 1 else []


def all_gather(shape: Shape, dtype: torch.dtype) -> Tensors:
    outputs = [shape(empty(dtype)) for _ in range(world())]
    group().allgather([outputs], [shape(mine(dtype))]).wait()
    return outputs


def all_gather_coalesced(shape: Shape, dtype: torch.dtype) -> Tensors:
    outputs = [[shape(empty(dtype)), shape(empty(dtype))] for _ in range(world())]
    inputs = [shape(mine(dtype)), shape(2 * mine(dtype))]
    group().allgather_coalesced(outputs, inputs).wait()
    return [output for row in outputs for output in row]


def all_gather_into_tensor(shape: Shape, dtype: torch.dtype) -> Tensors:
    output = shape(empty(dtype, world()))
    group()._allgather_base(output, shape(mine(dtype))).wait()
    return [output]


def all_gather_into_tensors(shape: Shape, dtype: torch.dtype) -> Tensors:
    outputs = [shape(empty(dtype, world())) for _ in range(2)]
    inputs = [shape(mine(dtype)), shape(2 * mine(dtype))]
    group().allgather_into_tensor_coalesced(outputs, inputs).wait()
    return outputs


def reduce_scatter(shape: Shape, dtype: torch.dtype) -> Tensors:
    output = shape(empty(dtype))
    group().reduce_scatter([output], [[shape(mine(dtype)) for _ in range(world())]]).wait()
    return [output]


def reduce_scatter_tensor(shape: Shape, dtype: torch.dtype) -> Tensors:
    output, options = shape(empty(dtype)), dist.ReduceScatterOptions()
    group()._reduce_scatter_base(output, shape(mine(dtype, world())), options).wait()
    return [output]


def reduce_scatter_tensors(shape: Shape, dtype: torch.dtype) -> Tensors:
    outputs = [shape(empty(dtype)) for _ in range(2)]
    inputs = [shape(mine(dtype, world())), shape(2 * mine(dtype, world()))]
    group().reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    return outputs


def scatter(shape: Shape, dtype: torch.dtype) -> Tensors:
    output, options = shape(empty(dtype)), dist.ScatterOptions()
    options.rootRank = 2
    inputs = [[shape(mine(dtype)) for _ in range(world())]] if dist.get_rank() == 2 else []
    group().scatter([output], inputs, options).wait()
    return [output]


def gather(shape: Shape, dtype: torch.dtype) -> Tensors:
    options = dist.GatherOptions()
    options.rootRank = 2
    outputs = [[shape(empty(dtype)) for _ in range(world())]] if dist.get_rank() == 2 else []
    group().gather(outputs, [shape(mine(dtype))], options).wait()
    return outputs[0] if outputs else []


def all_to_all(shape: Shape, dtype: torch.dtype) -> Tensors:
    outputs = [shape(empty(dtype)) for _ in range(world())]
    group().alltoall(outputs, [shape(mine(dtype)) for _ in range(world())]).wait()
    return outputs


def all_to_all_single(shape: Shape, dtype: torch.dtype) -> Tensors:
    output = shape(empty(dtype, world()))
    group().alltoall_base(output, shape(mine(dtype, world())), [], []).wait()
    return [output]


def send_and_receive(shape: Shape, dtype: torch.dtype) -> Tensors:
    rank, tensor = dist.get_rank(), shape(empty(dtype))
    if rank == 0:
        group().send([shape(mine(dtype))], 1, 0).wait()
    if rank == 1:
        group().recv([tensor], 0, 0).wait()
    return [tensor]


def receive_from_any(shape: Shape, dtype: torch.dtype) -> Tensors:
    rank, tensor = dist.get_rank(), shape(empty(dtype))
    if rank == 2:
        group().send([shape(mine(dtype))], 1, 5).wait()
    if rank == 1:
        group().recv_anysource([tensor], 5).wait()
    return [tensor]


BODIES: list[Body] = [
    all_reduce,
    all_reduce_future,
    all_reduce_coalesced,
    all_reduce_in_a_manager,
    broadcast,
    reduce,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_into_tensors,
    reduce_scatter,
    reduce_scatter_tensor,
    reduce_scatter_tensors,
    scatter,
    gather,
    all_to_all,
    all_to_all_single,
    send_and_receive,
    receive_from_any,
]


# Gloo takes no complex numbers where it only moves elements.
WITH_COMPLEX = {
    all_reduce,
    all_reduce_future,
    all_reduce_coalesced,
    all_reduce_in_a_manager,
    broadcast,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    reduce_scatter_tensors,
    send_and_receive,
    receive_from_any,
}


def same_as_plain(body: Body, shape: Shape, dtype: torch.dtype) -> None:
    expected, found = body(torch.clone, dtype), body(shape, dtype)
    same = [tensor.equal(other) for tensor, other in zip(found, expected, strict=True)]
    assert all(same), (shape, dtype, found, expected)
    if shape is strided:
        assert all(untouched_between(tensor) for tensor in found if tensor._is_view())


def same_in_all_forms(body: Body) -> None:
    for shape, dtype in FORMS:
        if body in WITH_COMPLEX or not dtype.is_complex:
            same_as_plain(body, shape, dtype)


def untouched_between(tensor: torch.Tensor) -> bool:
    assert tensor._base is not None
    return bool(tensor._base[1::2].eq(-7).all())


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_same_as_plain_memory(ranks: Ranks, body: Body) -> None:
    ranks.run(same_in_all_forms, body)


def different_on_each_rank() -> None:
    """What a rank's tensor is like must decide nothing that all ranks have to do alike."""
    shapes: list[Shape] = [torch.clone, strided, negated_in_one_piece]
    for dtype in (torch.float32, torch.int8):
        for body in (all_reduce, reduce_scatter, all_to_all, all_gather_into_tensor):
            same_as_plain(body, shapes[dist.get_rank()], dtype)


def test_each_rank_another_kind(ranks: Ranks) -> None:
    ranks.run(different_on_each_rank)


def polling(dtype: torch.dtype) -> None:
    view = strided(torch.ones(4).to(dtype))
    work = group().allreduce([view])
    while not work.is_completed():
        pass
    assert view.eq(world()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_completed_view_is_up_to_date_without_wait(ranks: Ranks, dtype: torch.dtype) -> None:
    ranks.run(polling, dtype)


def made_in_inference_mode() -> None:
    for dtype in (torch.float32, torch.uint8):
        with torch.inference_mode():
            tensor = strided(torch.ones(4).to(dtype))
        dist.all_reduce(tensor)
        assert tensor.eq(world()).all()


def test_views_of_inference_mode(ranks: Ranks) -> None:
    ranks.run(made_in_inference_mode)


def zeros_without_memory() -> None:
    zeros = torch._efficientzerotensor(4)
    output = torch.ones(4 * world())
    group()._allgather_base(output, zeros).wait()
    assert output.eq(0).all()
    with pytest.raises(RuntimeError, match="immutable"):
        dist.all_reduce(zeros)


def test_zeros_without_memory_are_read_and_never_written(ranks: Ranks) -> None:
    ranks.run(zeros_without_memory)


def lazy_forms() -> None:
    for shape, dtype in FORMS:
        for body in (all_reduce, broadcast, reduce):
            same_as_plain(body, shape, dtype)


def test_beside_another_backend(new_ranks: Callable[..., Ranks]) -> None:
    """There torch's own group calls ours."""
    new_ranks(2, "cpu:sparsewire,cuda:gloo").run(lazy_forms)


def read_by_gloo() -> None:
    """Torch resolves what other backends get, as it does without us."""
    output = torch.zeros(4 * world())
    expected = torch.zeros(4 * world())
    dist.all_gather_into_tensor(expected, mine(torch.float32), group=gloo_group())
    lazy = negated_in_one_piece(mine(torch.float32))
    dist.all_gather_into_tensor(output, lazy, group=gloo_group())
    assert output.equal(expected)


def test_other_backends_read_them_as_before(ranks: Ranks) -> None:
    ranks.run(read_by_gloo)
