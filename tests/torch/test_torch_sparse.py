"""Sparse COO tensors through torch.distributed: the engine takes them, and in gloo's form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lost_rank import assert_others_survived, leave_or_go_backward
from models import train
from ranks import Ranks
from reference import assert_like_gloo, engine_operations, gloo_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sparsewire

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
GLOO_DTYPES = {"float32", "float64", "float16", "int32", "int64"}
# Shape, and how many of its dimensions are sparse.
FORMS = [((40,), 1), ((300, 16), 1), ((9, 7), 2), ((5, 4, 3, 6), 2), ((6, 5, 4), 3), ((4, 5000), 1)]
IN_TIME_S = 20.0


def sparse(
    shape: tuple[int, ...], sparse_dims: int, entries: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Positions that differ between ranks and repeat; values exact in every order of summation."""
    torch.manual_seed(dist.get_rank())
    positions = [torch.randint(size, (entries,)) for size in shape[:sparse_dims]]
    values = torch.randint(-2, 3, (entries, *shape[sparse_dims:])).to(dtype)
    return torch.sparse_coo_tensor(torch.stack(positions), values, shape, check_invariants=True)


def reduced(tensor: torch.Tensor, group: Any = None, **options: Any) -> torch.Tensor:
    dist.all_reduce(tensor, group=group, **options)
    return tensor


def assert_sums(make: Callable[[], torch.Tensor], exact_dtype: torch.dtype) -> None:
    """Check against dense sums that gloo made."""
    tensor = make()
    expected = reduced(tensor.to_dense().to(exact_dtype), gloo_group()).to(tensor.dtype)
    before = engine_operations()
    dist.all_reduce(tensor)
    assert engine_operations() == before + 1
    assert tensor.is_sparse
    assert tensor.is_coalesced()
    positions = tensor.indices()
    assert positions.shape == (tensor.sparse_dim(), tensor._nnz())
    assert positions.unique(dim=1).shape == positions.shape
    torch.testing.assert_close(tensor.to_dense(), expected, rtol=0, atol=0)


def sums(shape: tuple[int, ...], sparse_dims: int, entries: int, dtype: str = "float32") -> None:
    exact = torch.int64 if "int" in dtype else torch.float64
    assert_sums(lambda: sparse(shape, sparse_dims, entries, getattr(torch, dtype)), exact)


@pytest.mark.parametrize(("shape", "sparse_dims"), FORMS)
def test_shapes(ranks: Ranks, shape: tuple[int, ...], sparse_dims: int) -> None:
    ranks.run(sums, shape, sparse_dims, 12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(ranks: Ranks, dtype: str) -> None:
    ranks.run(sums, (60, 20), 1, 15, dtype)


def some_empty(empty_ranks: set[int]) -> None:
    entries = 0 if dist.get_rank() in empty_ranks else 5
    assert_sums(lambda: sparse((30, 4), 1, entries), torch.float64)


@pytest.mark.parametrize("empty_ranks", [{0}, {1, 2}, {0, 1, 2}])
def test_ranks_without_entries(ranks: Ranks, empty_ranks: set[int]) -> None:
    ranks.run(some_empty, empty_ranks)


def same_form_as_gloo() -> None:
    """Both write into the tensor, also where the work is not asked for its result."""

    def body(group: Any) -> list[Any]:
        tensor = sparse((50, 8), 1, 9)
        work: Any = dist.all_reduce(tensor, group=group, async_op=True)
        work.wait()
        result = work.result()[0]
        return [tensor.is_coalesced(), tensor.indices(), tensor.values(), result.to_dense()]

    assert_like_gloo(body)


def test_the_result_has_the_form_that_gloo_gives(ranks: Ranks) -> None:
    ranks.run(same_form_as_gloo)


def averages() -> None:
    tensor = sparse((30,), 1, 8)
    expected = reduced(tensor.to_dense(), gloo_group()) / dist.get_world_size()
    torch.testing.assert_close(reduced(tensor, op=dist.ReduceOp.AVG).to_dense(), expected)


def not_for_the_engine() -> None:
    before = engine_operations()
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(sparse((5,), 1, 2), op=dist.ReduceOp.MAX)
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(sparse((5,), 1, 2, torch.int32), op=dist.ReduceOp.AVG)
    assert engine_operations() == before


@pytest.mark.parametrize("task", [averages, not_for_the_engine])
def test_operations(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


def futures() -> None:
    tensor = sparse((30, 4), 1, 6)
    expected = reduced(tensor.to_dense(), gloo_group())
    future: Any = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda done: done.value()[0] / 2)
    assert future.wait()[0] is tensor
    torch.testing.assert_close(halved.wait().to_dense(), expected / 2)
    torch.testing.assert_close(tensor.to_dense(), expected)


def polling() -> None:
    tensor = sparse((30, 4), 1, 6)
    expected = reduced(tensor.to_dense(), gloo_group())
    work: Any = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        pass
    torch.testing.assert_close(tensor.to_dense(), expected)


def coalesced() -> None:
    tensors = [sparse((30,), 1, 4), torch.ones(3), sparse((8, 16), 1, 4)]
    expected = [reduced(tensor.to_dense(), gloo_group()) for tensor in tensors]
    group: Any = dist.group.WORLD
    group.allreduce_coalesced(tensors).wait()
    torch.testing.assert_close([tensor.to_dense() for tensor in tensors], expected)


@pytest.mark.parametrize("task", [futures, polling, coalesced])
def test_ways_to_wait(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


def broadcast() -> None:
    tensor = sparse((30, 4), 1, 6)
    expected = tensor.to_dense()
    dist.broadcast(expected, 1)
    before = engine_operations()
    dist.broadcast(tensor, 1)
    assert engine_operations() == before + 1
    torch.testing.assert_close(tensor.to_dense(), expected)


def reduce() -> None:
    tensor = sparse((30, 4), 1, 6)
    total = reduced(tensor.to_dense(), gloo_group())
    expected = total if dist.get_rank() == 2 else tensor.to_dense()
    dist.reduce(tensor, 2)
    torch.testing.assert_close(tensor.to_dense(), expected)


def all_gather() -> None:
    tensor = sparse((30, 4), 1, 6)
    outputs = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    expected = [torch.empty(30, 4) for _ in outputs]
    dist.all_gather(expected, tensor.to_dense())
    dist.all_gather(outputs, tensor)
    torch.testing.assert_close([output.to_dense() for output in outputs], expected)
    with pytest.raises(ValueError, match=r"shape \(30, 4\)"):
        dist.all_gather([torch.eye(3).to_sparse()] * len(outputs), tensor)


@pytest.mark.parametrize("task", [broadcast, reduce, all_gather])
def test_other_collectives(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


def different_shapes() -> None:
    with pytest.raises(sparsewire.MismatchError):
        dist.all_reduce(sparse((5 + dist.get_rank(),), 1, 2), group=dist.new_group())


def dense_and_sparse() -> None:
    tensor = sparse((5,), 1, 2)
    with pytest.raises(sparsewire.MismatchError):
        dist.all_reduce(tensor.to_dense() if dist.get_rank() else tensor, group=dist.new_group())


def out_of_range_on_one_rank() -> None:
    last = 50 if dist.get_rank() == 1 else 3
    tensor = torch.sparse_coo_tensor(
        torch.tensor([[1, last]]), torch.ones(2), (5,), check_invariants=False
    )
    with pytest.raises(sparsewire.InputError, match="rank 1"):
        dist.all_reduce(tensor)
    sums((30,), 1, 4)


@pytest.mark.parametrize("task", [different_shapes, dense_and_sparse, out_of_range_on_one_rank])
def test_errors_are_typed_on_every_rank(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


class Tags(nn.Module):
    """Two tables with sparse gradients, of which the second one's is ready first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Embedding(60, 16, sparse=True)
        self.second = nn.Embedding(40, 16, sparse=True)
        self.head = nn.Linear(16, 1)

    def forward(self, batch: torch.Tensor, step: int) -> torch.Tensor:
        # Repeated positions, and on rank 1 some steps with but a single one.
        names = batch.abs().mul(10).long()
        if dist.get_rank() == 1 and step % 2:
            names = torch.zeros_like(names)
        looked_up = self.first(names % 60).mean(1)
        if looked_up.requires_grad:
            looked_up.register_hook(self.before_first)
        return self.head(torch.tanh(looked_up) + self.second(names % 40).mean(1))

    def before_first(self, gradient: torch.Tensor) -> None:
        """Runs in the backward pass before the gradient of `first` exists."""


def trains_like_gloo() -> None:
    expected = train(Tags, gloo_group())
    losses, weights = train(Tags, dist.group.WORLD)
    torch.testing.assert_close((losses, weights), expected, rtol=1e-6, atol=1e-6)
    for value in weights.values():
        everywhere = [torch.empty_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, value)
        assert all(each.equal(value) for each in everywhere)


def test_sparse_embeddings_train_like_gloo(ranks: Ranks) -> None:
    ranks.run(trains_like_gloo)


def overlaps() -> None:
    """The sum of one table's gradient ends while the backward pass still has work to do."""
    model = DistributedDataParallel(Tags())
    finished: list[bool] = []
    group: Any = dist.group.WORLD
    issue = type(group).allreduce
    works: list[Any] = []

    def recording(self: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        works.append((tensors[0].layout, issue(self, tensors, *args, **kwargs)))
        return works[-1][1]

    def wait_in_backward(gradient: torch.Tensor) -> None:
        deadline = time.monotonic() + IN_TIME_S
        of_tables = [work for layout, work in works if layout is torch.sparse_coo]
        while not all(work.is_completed() for work in of_tables) and time.monotonic() < deadline:
            time.sleep(0.001)
        finished.append(len(of_tables) == 1 and of_tables[0].is_completed())

    model.module.before_first = wait_in_backward
    type(group).allreduce = recording
    try:
        model(torch.randn(4, 16), 0).sum().backward()
    finally:
        type(group).allreduce = issue
    assert finished == [True]


def test_sums_of_sparse_gradients_overlap_with_backward(ranks: Ranks) -> None:
    ranks.run(overlaps)


def lost_in_backward(lost: int) -> str:
    model = DistributedDataParallel(Tags())
    model(torch.randn(4, 16), 0).sum().backward()
    return leave_or_go_backward(model(torch.randn(4, 16), 1).sum(), lost)


def test_a_lost_rank_is_named_by_backward(new_ranks: Callable[..., Ranks]) -> None:
    assert_others_survived(new_ranks(3).outcomes(lost_in_backward, 1), 1)
