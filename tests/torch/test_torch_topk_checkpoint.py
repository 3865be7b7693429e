"""The top-k hook's state, saved and loaded: by the same ranks, and by another number of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import FEATURES, batch_of
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks
from sparsewire.torch.hooks.saved import residuals_of
from sparsewire.torch.hooks.saved import states_of as checked


def resumed() -> None:
    """Saved, loaded into new objects and gone on with: the same as without a break."""

    def start() -> tuple[Any, hooks.TopKState]:
        torch.manual_seed(1)
        model = DistributedDataParallel(nn.Linear(FEATURES, 64))
        state = hooks.TopKState(k=1, span=64)
        state.register(model)
        model.register_comm_hook(state, hooks.topk_hook)
        return model, state

    def go_on(model: Any, steps: range) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in steps:
            optimizer.zero_grad()
            model(batch_of(step)).square().mean().backward()
            optimizer.step()

    whole, _ = start()
    go_on(whole, range(6))
    first, first_state = start()
    go_on(first, range(3))
    saved = first_state.state_dict()
    assert any(residual.any() for residual in saved["residuals"].values())
    go_on(first, range(3, 4))  # What was saved stays what it was.
    second, second_state = start()
    second_state.load_state_dict(saved)
    assert second_state.step == 3
    model_after_three, _ = start()
    go_on(model_after_three, range(3))
    second.module.load_state_dict(model_after_three.module.state_dict())
    go_on(second, range(3, 6))
    assert second.module.weight.equal(whole.module.weight)

    with pytest.raises(ValueError, match="fits no parameter"):
        second_state.load_state_dict({**saved, "residuals": {"weight": torch.zeros(3)}})
    with pytest.raises(ValueError, match="list"):
        second_state.load_state_dict({**saved, "world_size": 7})


def test_saved_and_loaded(ranks: Ranks) -> None:
    ranks.run(resumed)


def loads_what_was_saved_before() -> None:
    """The format in which the hook has always saved: rank, world size, step and residuals."""
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    old = {
        "rank": rank,
        "world_size": size,
        "step": 7,
        "residuals": {"weight": torch.arange(FEATURES * 2.0), "bias": torch.tensor([0.5, -1.0])},
    }
    model = DistributedDataParallel(nn.Linear(FEATURES, 2))
    state = hooks.TopKState(k=1, span=64)
    state.register(model)
    state.load_state_dict(old)
    assert state.step == 7
    saved = state.state_dict()
    assert saved.keys() == old.keys()
    assert all(saved["residuals"][name].equal(each) for name, each in old["residuals"].items())
    model.register_comm_hook(state, hooks.topk_hook)
    model(torch.zeros(2, FEATURES)).sum().backward()
    # The weight's gradient is zero on all ranks: what is owed of it stays. The bias has one of 2.
    assert not model.module.weight.grad.any()
    assert model.module.bias.grad.equal(torch.tensor([2.5, 0.0]))
    assert state.residuals.of(model.module.bias).tolist() == [0.0, 1.0]
    state.load_state_dict([{**old, "rank": rank} for rank in range(size)])
    assert state.state_dict()["residuals"]["weight"].equal(old["residuals"]["weight"])


def test_what_was_saved_before_is_loaded(ranks: Ranks) -> None:
    ranks.run(loads_what_was_saved_before)


def states_of(world_size: int) -> list[Any]:
    return [
        {
            "rank": rank,
            "world_size": world_size,
            "step": 9,
            "residuals": {"weight": torch.arange(12.0) * (rank + 1), "bias": torch.ones(1)},
        }
        for rank in range(world_size)
    ]


@pytest.mark.parametrize(("old", "new"), [(4, 4), (4, 2), (5, 3), (2, 4), (3, 1), (1, 3)])
def test_another_number_of_ranks_owes_the_same_mean(old: int, new: int) -> None:
    before = states_of(old)
    after = [residuals_of(checked(before[::-1], rank, new), rank, new) for rank in range(new)]
    for name in ("weight", "bias"):
        owed = torch.stack([state["residuals"][name] for state in before]).mean(0)
        left = sum(residuals.get(name, torch.zeros(1)) for residuals in after) / new
        torch.testing.assert_close(left, owed)


def test_states_must_be_complete() -> None:
    with pytest.raises(ValueError, match="all 4 ranks"):
        checked(states_of(4)[:3], 0, 2)
    with pytest.raises(ValueError, match="rank 0 of 4"):
        checked(states_of(4)[0], 1, 4)
    first, second = states_of(2)
    with pytest.raises(ValueError, match="different steps, 8 to 9"):
        checked([first, {**second, "step": 8}], 0, 1)
