"""The top-k hook in training: nothing is lost when buckets change, on any backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lost_rank import assert_others_survived, leave_or_go_backward
from models import FEATURES, Embedding, Plain, batch_of, train
from ranks import Ranks
from reference import gloo_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks, stats

PRECISIONS = [None, "int8", "int4", "int2"]
IN_TIME_S = 20.0


class Products(nn.Module):
    """The gradient of each parameter is the step's data, whatever the parameters are.

    The first layers are used last, so their gradients are ready first, and DDP has to change the
    buckets that it made in the order of the definitions.
    """

    SIZES = (200_000, 70, 150_000, 3000, 513)

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(size) for size in self.SIZES)

    def forward(self, data: list[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(())
        for weight, each in reversed(list(zip(self.weights, data, strict=True))):
            total = total + (weight * each).sum()
        return total


def small_integers(step: int) -> list[torch.Tensor]:
    torch.manual_seed(10 * step + dist.get_rank())
    return [torch.randint(-50, 51, (size,)).float() for size in Products.SIZES]


def loses_nothing(precision: str | None) -> None:
    """What was applied and what is still owed add up to all gradients, for each parameter."""
    pair = dist.new_group([0, 1])
    if dist.get_rank() > 1:
        return
    state = hooks.TopKState(pair, precision=precision)
    seen: list[tuple[int, ...]] = []

    def recording(state, bucket):  # DDP does not know annotations that are text.
        seen.append(tuple(map(id, bucket.parameters())))
        return hooks.topk_hook(state, bucket)

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
        for each in (owed, total[index]):
            dist.all_reduce(each, group=pair)
        assert (2 * applied[index] + owed).equal(total[index])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nothing_is_lost_when_buckets_change(ranks: Ranks, precision: str | None) -> None:
    ranks.run(loses_nothing, precision)


def with_hook(state: hooks.TopKState) -> Callable[[Any, Any], Any]:
    def prepare(model: Any, group: Any) -> Any:
        model.register_comm_hook(state, hooks.topk_hook)
        return model

    return prepare


def assert_same_everywhere(weights: dict[str, torch.Tensor]) -> None:
    for name, value in weights.items():
        if "running" not in name:
            everywhere = [torch.empty_like(value) for _ in range(dist.get_world_size())]
            dist.all_gather(everywhere, value)
            assert all(each.equal(value) for each in everywhere)


def trains_on(backend: str, model_type: type[nn.Module]) -> None:
    group = gloo_group() if backend == "gloo" else dist.group.WORLD
    dense, _ = train(model_type, group, steps=60)
    state = hooks.TopKState(group, k=2, span=32)
    losses, weights = train(model_type, group, steps=60, prepare=with_hook(state))
    assert state.step == 60
    assert_same_everywhere(weights)
    last, last_dense = sum(losses[-10:]) / 10, sum(dense[-10:]) / 10
    assert last < 0.5 * losses[0]
    assert last < 3 * last_dense


@pytest.mark.parametrize("backend", ["sparsewire", "gloo"])
def test_trains(ranks: Ranks, backend: str) -> None:
    ranks.run(trains_on, backend, Plain)


def sparse_gradients() -> None:
    expected = train(Embedding, dist.group.WORLD)
    state = hooks.TopKState(k=32, span=32, precision=None)
    actual = train(Embedding, dist.group.WORLD, prepare=with_hook(state))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def same_on_both_backends() -> None:
    results = []
    for group in (gloo_group(), dist.group.WORLD):
        state = hooks.TopKState(group, k=2, span=32)
        # The group made beside gloo serves all states.
        assert hooks.TopKState(group).group is state.group
        results.append(train(Plain, group, prepare=with_hook(state)))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def warm_up() -> None:
    expected = train(Plain, dist.group.WORLD, steps=3)
    state = hooks.TopKState(k=1, span=512, warmup_steps=3)
    actual = train(Plain, dist.group.WORLD, steps=3, prepare=with_hook(state))
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    state = hooks.TopKState(k=1, span=512, warmup_steps=2)
    actual = train(Plain, dist.group.WORLD, steps=3, prepare=with_hook(state))
    assert actual[0] == pytest.approx(expected[0], rel=1e-5)
    assert not actual[1]["layers.0.weight"].allclose(expected[1]["layers.0.weight"])


def half_precision() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        model = DistributedDataParallel(nn.Linear(FEATURES, 8, dtype=dtype))
        state = hooks.TopKState(k=128, span=128, precision=None)
        model.register_comm_hook(state, hooks.topk_hook)
        data = torch.full((2, FEATURES), float(1 + dist.get_rank()), dtype=dtype)
        model(data).sum().backward()
        assert model.module.weight.grad.dtype == dtype
        assert model.module.weight.grad.eq(4).all()  # Twice the mean of 1, 2 and 3.


def unsupported() -> None:
    for settings in ({"k": 0}, {"k": 9, "span": 8}, {"span": 0}, {"precision": "int3"}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            hooks.TopKState(**settings)
    with pytest.raises(ValueError, match="warmup_steps"):
        hooks.TopKState(warmup_steps=-1)
    with pytest.raises(RuntimeError, match="register"):
        hooks.TopKState().state_dict()
    model = DistributedDataParallel(nn.Linear(FEATURES, 1, dtype=torch.float64))
    model.register_comm_hook(hooks.TopKState(), hooks.topk_hook)
    with pytest.raises(TypeError, match="float64"):
        model(batch_of(0).double()).sum().backward()


@pytest.mark.parametrize(
    "task",
    [sparse_gradients, same_on_both_backends, warm_up, half_precision, unsupported],
)
def test_settings(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


def sends_little() -> None:
    size = dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(2000, 2000))
    model.register_comm_hook(hooks.TopKState(), hooks.topk_hook)
    # Until all are here, a rank may still send to others what it owns of their last sum.
    dist.barrier(gloo_group())
    before = stats()["bytes_sent"]
    model(torch.randn(4, 2000)).sum().backward()
    dist.barrier(gloo_group())
    sent = torch.tensor(stats()["bytes_sent"] - before)
    dist.all_reduce(sent, group=gloo_group())
    # At most 6 bytes for 4 of 512 go from everybody to everybody else.
    expected = size * (size - 1) * 6 * 4_002_000 / 512
    assert 0.8 * expected < sent < 1.05 * expected, (sent, expected)


def test_records_are_all_that_is_sent(ranks: Ranks) -> None:
    ranks.run(sends_little)


class Watched(nn.Module):
    """Two layers; `watch` is called in the backward pass when the second one is done."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 8000)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.first(batch)
        hidden.register_hook(self.watch)
        return self.second(hidden)

    def watch(self, gradient: torch.Tensor) -> None:
        pass


def overlaps() -> None:
    """The second layer's gradient is averaged while the backward pass still has work to do."""
    model = DistributedDataParallel(Watched())
    futures: list[torch.futures.Future[torch.Tensor]] = []
    finished: list[bool] = []

    def recording(state, bucket):  # DDP does not know annotations that are text.
        futures.append(hooks.topk_hook(state, bucket))
        return futures[-1]

    def wait_for_end(gradient: torch.Tensor) -> None:
        deadline = time.monotonic() + IN_TIME_S
        while not all(future.done() for future in futures) and time.monotonic() < deadline:
            time.sleep(0.001)
        finished.append(len(futures) == 1 and futures[0].done())

    model.register_comm_hook(hooks.TopKState(), recording)
    batch = torch.randn(4, 64)
    model(batch).sum().backward()  # In its first step, DDP has but one bucket.
    futures.clear()
    model.module.watch = wait_for_end
    model(batch).sum().backward()
    assert len(futures) == 2
    assert finished == [True]


def test_overlaps_with_backward(ranks: Ranks) -> None:
    ranks.run(overlaps)


def refuses_other_devices() -> None:
    dense = torch.zeros(4, device="meta")
    sparse = torch.sparse_coo_tensor((4, 4), device="meta")
    in_full = SimpleNamespace(average=lambda gradient: gradient)
    state = hooks.TopKState(warmup_steps=1)
    state.transport = in_full
    for gradient in (dense, sparse):
        assert hooks.topk_hook(state, bucket_of(gradient)) is gradient
    with pytest.raises(ValueError, match="on CPU and CUDA, not on meta"):
        hooks.topk_hook(state, bucket_of(dense))


def bucket_of(gradient: torch.Tensor) -> Any:
    return SimpleNamespace(buffer=lambda: gradient, index=lambda: 0, is_last=lambda: True)


def test_other_devices_are_refused_only_where_it_compresses(ranks: Ranks) -> None:
    ranks.run(refuses_other_devices)


def lost_in_backward(lost: int) -> str:
    model = DistributedDataParallel(nn.Linear(FEATURES, 64))
    model.register_comm_hook(hooks.TopKState(), hooks.topk_hook)
    model(batch_of(0)).sum().backward()
    return leave_or_go_backward(model(batch_of(1)).sum(), lost)


def test_a_lost_rank_is_named_by_backward(new_ranks: Callable[..., Ranks]) -> None:
    assert_others_survived(new_ranks(3).outcomes(lost_in_backward, 1), 1)


def on_cuda_alone() -> None:
    """As a group of NCCL is, which has no backend for the CPU."""

    def make(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        return dist.ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend("cuda_alone", make, devices=["cuda"])
    group = dist.new_group(backend="cuda_alone", timeout=timedelta(seconds=17))
    assert group._device_types == [torch.device("cuda")]
    state = hooks.TopKState(group)
    assert state.group._timeout == timedelta(seconds=17)
    state.group.shutdown()


def test_a_group_for_cuda_alone(new_ranks: Callable[..., Ranks]) -> None:
    new_ranks(2).run(on_cuda_alone)
