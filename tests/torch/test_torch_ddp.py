"""DistributedDataParallel on the backend: every mode of it, and the same losses as with gloo."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import FEATURES, Branching, Embedding, Plain, batch_of, train
from ranks import Ranks
from reference import engine_operations, gloo_group
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

MODES: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "plain": (Plain, {}),
    "many_buckets": (Plain, {"bucket_cap_mb": 0.001}),
    "bucket_views": (Plain, {"gradient_as_bucket_view": True}),
    "static_graph": (Plain, {"static_graph": True}),
    "unused_parameters": (Branching, {"find_unused_parameters": True}),
    "sparse_embedding": (Embedding, {}),
}


def trains_like_gloo(model_type: type[nn.Module], options: dict[str, Any]) -> None:
    expected = train(model_type, gloo_group(), **options)
    before = engine_operations()
    actual = train(model_type, dist.group.WORLD, **options)
    assert engine_operations() > before
    # Three numbers may be added in another order.
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_trains_like_gloo(ranks: Ranks, mode: str) -> None:
    ranks.run(trains_like_gloo, *MODES[mode])


def accumulating(group: Any) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1), process_group=group)
    with model.no_sync():
        model(batch_of(0)).sum().backward()
    model(batch_of(1)).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def accumulates_like_gloo() -> None:
    expected = accumulating(gloo_group())
    torch.testing.assert_close(accumulating(dist.group.WORLD), expected)


def test_no_sync(ranks: Ranks) -> None:
    ranks.run(accumulates_like_gloo)


def uneven(group: Any) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1), process_group=group)
    with Join([model]):
        for step in range(1 + dist.get_rank()):
            model(batch_of(step)).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def joins_like_gloo() -> None:
    expected = uneven(gloo_group())
    torch.testing.assert_close(uneven(dist.group.WORLD), expected)


def test_join_of_uneven_inputs(ranks: Ranks) -> None:
    ranks.run(joins_like_gloo)


HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "fp16_wrapper": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
}


def hooked_like_gloo(name: str) -> None:
    def prepare(model: Any, group: Any) -> Any:
        model.register_comm_hook(group, HOOKS[name])
        return model

    options = {"prepare": prepare, "bucket_cap_mb": 0.001}
    expected = train(Plain, gloo_group(), **options)
    actual = train(Plain, dist.group.WORLD, **options)
    # Sums in half precision differ where they are made in another order.
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("name", HOOKS)
def test_torchs_own_hooks(ranks: Ranks, name: str) -> None:
    ranks.run(hooked_like_gloo, name)


def power_sgd(steps: int) -> None:
    """PowerSGD waits for new all_reduces inside callbacks, for several buckets at a time."""

    def prepare(model: Any, group: Any) -> Any:
        state = powerSGD_hook.PowerSGDState(
            process_group=group, matrix_approximation_rank=2, start_powerSGD_iter=3
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return model

    losses, weights = train(
        Plain, dist.group.WORLD, steps=steps, prepare=prepare, bucket_cap_mb=0.003
    )
    assert losses[-1] < losses[0]
    for name, value in weights.items():
        if "running" not in name:
            highest, lowest = value.clone(), value.clone()
            dist.all_reduce(highest, op=dist.ReduceOp.MAX)
            dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
            torch.testing.assert_close(highest, lowest, rtol=0, atol=0)


def test_power_sgd_for_many_steps(ranks: Ranks) -> None:
    ranks.run(power_sgd, 100)


def compiled_like_gloo() -> None:
    def compile_(model: Any, group: Any) -> Any:
        return torch.compile(model, backend="aot_eager")

    expected = train(Plain, gloo_group())
    actual = train(Plain, dist.group.WORLD, prepare=compile_)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_compiled_model(ranks: Ranks) -> None:
    ranks.run(compiled_like_gloo)


def compiled_collective() -> None:
    @functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    def program(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor * 2
        dist.all_reduce(tensor)
        return tensor + 1

    assert program(torch.ones(3)).eq(2 * dist.get_world_size() + 1).all()


def test_compiled_collective(ranks: Ranks) -> None:
    ranks.run(compiled_collective)
