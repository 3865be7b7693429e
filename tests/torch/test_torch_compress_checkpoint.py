"""States of the hooks for any compressor, saved and loaded, by as many ranks or by others."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import STATES, attach, make_state, subgroup
from models import FEATURES, batch_of
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Both draw random numbers.
RANDOM = {"feedback": "natural+top-k:0.1", "diana": "qsgd:3"}


def start(kind: str, group: Any = None) -> tuple[Any, Any]:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.Linear(64, 32))
    model = DistributedDataParallel(layers, process_group=group, bucket_cap_mb=0.005)
    state = make_state(kind, group, compressor=RANDOM[kind], seed=5)
    attach(model, state)
    return model, state


def go_on(model: Any, steps: range) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in steps:
        optimizer.zero_grad()
        model(batch_of(step)).square().mean().backward()
        optimizer.step()


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    return torch.load(file)


def resumed(kind: str) -> None:
    """Saved, loaded into new objects and gone on with: the same bits as without a break."""
    whole, _ = start(kind)
    go_on(whole, range(6))
    first, first_state = start(kind)
    go_on(first, range(3))
    saved, weights = through_a_file(first_state), first.module.state_dict()
    second, second_state = start(kind)
    second.module.load_state_dict(weights)
    second_state.load_state_dict(saved)
    assert second_state.step == 3
    go_on(second, range(3, 6))
    for name, weight in whole.module.state_dict().items():
        assert second.module.state_dict()[name].equal(weight)

    forgetful, _ = start(kind)
    forgetful.module.load_state_dict(weights)
    go_on(forgetful, range(3, 6))
    assert not forgetful.module[0].weight.equal(whole.module[0].weight)

    vectors = next(name for name in saved if name in ("residuals", "shifts"))
    with pytest.raises(ValueError, match="fits no parameter"):
        second_state.load_state_dict({**saved, vectors: {"0.weight": torch.zeros(3)}})
    with pytest.raises(ValueError, match="list"):
        second_state.load_state_dict({**saved, "world_size": 7})
    # As it was saved before jobs had names.
    second_state.load_state_dict({name: each for name, each in saved.items() if name != "job"})
    assert second_state.step == saved["step"]


@pytest.mark.parametrize("kind", STATES)
def test_saved_and_loaded(ranks: Ranks, kind: str) -> None:
    ranks.run(resumed, kind)


def mean_over(group: Any, vectors: dict[str, torch.Tensor], model: Any) -> dict[str, torch.Tensor]:
    """The means over a group, of zeros where a rank has nothing."""
    means = {}
    for name, parameter in model.module.named_parameters():
        means[name] = vectors.get(name, torch.zeros(parameter.numel())).clone()
        dist.all_reduce(means[name], group=group)
        means[name] /= dist.get_world_size(group)
    return means


def resized(kind: str, old: int, new: int) -> None:
    """Trained on `old` ranks, gone on with on `new`: the same mean is owed, or known."""
    before, after = subgroup(tuple(range(old))), subgroup(tuple(range(new)))
    saved = owed = None
    if dist.get_rank() < old:
        model, state = start(kind, before)
        go_on(model, range(3))
        saved = state.state_dict()
        vectors = saved["residuals"] if kind == "feedback" else saved["shifts"]
        owed = mean_over(before, vectors, model)
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, saved)
    expected = [owed]
    dist.broadcast_object_list(expected, src=0)
    if dist.get_rank() >= new:
        return
    model, state = start(kind, after)
    state.load_state_dict([each for each in reversed(states) if each is not None])
    assert state.step == 3
    loaded = state.state_dict()
    vectors = loaded["residuals"] if kind == "feedback" else loaded["shifts"]
    actual = mean_over(after, vectors, model)
    assert all(mean.any() for mean in actual.values())
    torch.testing.assert_close(actual, expected[0], rtol=1e-5, atol=1e-6)
    if kind == "diana":
        torch.testing.assert_close(loaded["mean_shifts"], actual, rtol=1e-5, atol=1e-6)
    go_on(model, range(3, 5))
    for weight in model.parameters():
        everywhere = [torch.empty_like(weight) for _ in range(new)]
        dist.all_gather(everywhere, weight.detach(), group=after)
        assert all(each.equal(weight) for each in everywhere)


def test_another_number_of_ranks(new_ranks: Callable[..., Ranks]) -> None:
    four = new_ranks(4)
    for kind in STATES:
        for old, new in ((2, 4), (4, 2)):
            four.run(resized, kind, old, new)
