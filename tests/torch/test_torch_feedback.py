"""Error feedback: what was sent and what is owed add up to the gradients, whatever the buckets."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from compressing import alone, attach, group_of, subgroup, with_hook
from models import Plain, train
from ranks import Ranks
from test_torch_topk_hook import Products, small_integers
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks, stats

# These send elements as they are, so that no bit is lost.
EXACT = [
    *("block-top-k:0.05", "block-top-k-ratio:0.05:64", "top-k:0.01", "threshold:2", "rand-k:0.1")
]
ROUNDED = ["sign:512", "qsgd:7", "natural+top-k:0.05", "low-rank:2"]


class Product(nn.Module):
    """The gradient is the data."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 2.0, size))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return (self.weight * data).sum()


def keeps_the_rest(compressor: str) -> None:
    group = alone()
    model = DistributedDataParallel(Product(10_000), process_group=group)
    state = hooks.ErrorFeedbackState(group, compressor)
    attach(model, state)
    residual = state.residuals.of(model.module.weight)
    sent_something = False
    for step in range(4):
        gradient = torch.randn(10_000, generator=torch.Generator().manual_seed(step))
        owed = gradient + residual
        model.zero_grad()
        model(gradient).backward()
        sent = model.module.weight.grad
        sent_something |= bool(sent.any())
        assert residual.equal(owed - sent)
        if compressor in EXACT:
            # In float64 both sums are exact.
            assert (sent.double() + residual.double()).equal(owed.double())
            assert (sent + residual).equal(owed)
    assert sent_something
    assert residual.any()


@pytest.mark.parametrize("compressor", EXACT + ROUNDED)
def test_residual_is_what_was_not_sent(ranks: Ranks, compressor: str) -> None:
    ranks.run(keeps_the_rest, compressor)


def loses_nothing(backend: str, overlap: bool) -> None:
    """What was applied and what is still owed add up to all gradients, for each parameter."""
    pair = subgroup((0, 1), backend)
    if dist.get_rank() > 1:
        return
    state = hooks.ErrorFeedbackState(pair, "top-k:0.01", overlap=overlap, min_elements=512)
    seen: list[tuple[int, ...]] = []

    def recording(state, bucket):  # DDP does not know annotations that are text.
        seen.append(tuple(map(id, bucket.parameters())))
        return hooks.error_feedback_hook(state, bucket)

    model = DistributedDataParallel(Products(), process_group=pair, bucket_cap_mb=0.01)
    model.register_comm_hook(state, recording)
    total = [torch.zeros(size, dtype=torch.float64) for size in Products.SIZES]
    applied = [torch.zeros(size, dtype=torch.float64) for size in Products.SIZES]
    buckets_of_step = []
    for step in range(4):
        data = small_integers(step)
        model.zero_grad()
        model(data).backward()
        buckets_of_step.append(tuple(seen))
        seen.clear()
        for index, weight in enumerate(model.module.weights):
            total[index] += data[index]
            applied[index] += weight.grad
    assert buckets_of_step[0] != buckets_of_step[1]
    for index, weight in enumerate(model.module.weights):
        owed = state.residuals.of(weight).double()
        assert owed.any() == (weight.numel() >= 512)
        for each in (owed, total[index]):
            dist.all_reduce(each, group=pair)
        assert (2 * applied[index] + owed).equal(total[index])


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("backend", ["sparsewire", "gloo"])
def test_nothing_is_lost_when_buckets_change(ranks: Ranks, backend: str, overlap: bool) -> None:
    ranks.run(loses_nothing, backend, overlap)


def sends_nothing() -> None:
    """Messages without a byte of code are messages, too: all of it is owed."""
    for backend in ("sparsewire", "gloo"):
        group = group_of(backend)
        model = DistributedDataParallel(Product(10_000), process_group=group)
        state = hooks.ErrorFeedbackState(group, "threshold:1e9")
        attach(model, state)
        gradient = torch.randn(10_000)
        model(gradient).backward()
        assert not model.module.weight.grad.any()
        assert state.residuals.of(model.module.weight).equal(gradient)


def test_nothing_may_be_sent(ranks: Ranks) -> None:
    ranks.run(sends_nothing)


def trains_on(backend: str, compressor: str) -> None:
    group = group_of(backend)
    dense, _ = train(Plain, group, steps=60)
    state = hooks.ErrorFeedbackState(group, compressor, min_elements=0)
    losses, _ = train(Plain, group, steps=60, prepare=with_hook(state))
    assert state.step == 60
    last, last_dense = sum(losses[-10:]) / 10, sum(dense[-10:]) / 10
    assert last < 0.5 * losses[0]
    assert last < 3 * last_dense


@pytest.mark.parametrize(
    ("backend", "compressor"),
    [("sparsewire", "block-top-k:0.1:16"), ("gloo", "top-k:0.1"), ("sparsewire", "sign")],
)
def test_trains_as_dense(ranks: Ranks, backend: str, compressor: str) -> None:
    ranks.run(trains_on, backend, compressor)


def finds_common_minimum() -> None:
    """Every rank pulls elsewhere, and yet all arrive at the mean of their targets."""
    size = 512
    target = torch.randn(size, generator=torch.Generator().manual_seed(dist.get_rank()))
    expected = target.clone()
    dist.all_reduce(expected, op=dist.ReduceOp.AVG)
    model = DistributedDataParallel(Product(size))
    attach(model, hooks.ErrorFeedbackState(compressor="block-top-k:0.25:16", min_elements=0))
    weight = model.module.weight
    for step in range(400):
        model.zero_grad()
        model(weight.detach() - target).backward()
        with torch.no_grad():
            weight -= 0.2 * 0.98**step * weight.grad
    assert (weight - expected).norm() < 0.02 * expected.norm()


def test_finds_the_minimum_of_all_ranks(ranks: Ranks) -> None:
    ranks.run(finds_common_minimum)


def sends_little() -> None:
    size = dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(2000, 2000))
    attach(model, hooks.ErrorFeedbackState())
    dist.barrier(group_of("gloo"))
    before = stats()["bytes_sent"]
    model(torch.randn(4, 2000)).sum().backward()
    dist.barrier(group_of("gloo"))
    sent = torch.tensor(stats()["bytes_sent"] - before)
    dist.all_reduce(sent, group=group_of("gloo"))
    # 1% of the blocks of 256 and all biases go from everybody to everybody else.
    expected = size * (size - 1) * 4 * (0.01 * 4_000_000 + 2000)
    assert 0.98 * expected < sent < 1.05 * expected, (sent, expected)


def test_messages_are_all_that_is_sent(ranks: Ranks) -> None:
    ranks.run(sends_little)
