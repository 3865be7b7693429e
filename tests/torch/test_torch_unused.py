"""Parameters that no rank uses in a step: DDP throws away what a hook makes of them, and so nothing
of what is owed may be in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import subgroup
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks

SIZE = 600


class Turns(nn.Module):
    """Two vectors, of which a step uses those that it names; the gradient is the data."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(SIZE, dtype=dtype) for _ in range(2))

    def forward(self, data: torch.Tensor, used: tuple[int, ...]) -> torch.Tensor:
        total = torch.zeros(())
        for index in used:
            total = total + (self.weights[index] * data).sum()
        return total


def feedback(group: Any, **settings: Any) -> tuple[Any, Any]:
    settings = {"compressor": "top-k:0.05", "min_elements": 0, **settings}
    return hooks.ErrorFeedbackState(group, **settings), hooks.error_feedback_hook


def top_k(group: Any, **settings: Any) -> tuple[Any, Any]:
    return hooks.TopKState(group, k=3, span=60, **settings), hooks.topk_hook


KINDS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "feedback": feedback,
    "feedback, no overlap": lambda group: feedback(group, overlap=False),
    "top-k": lambda group: top_k(group, precision=None),
    "top-k int4": top_k,
}
kinds = pytest.mark.parametrize("kind", KINDS)


class Training:
    """A model with a hook on a group, and what its gradients, and the means of them, add up to."""

    def __init__(self, kind: str, group: Any, **options: Any) -> None:
        self.group = group
        self.state, hook = KINDS[kind](group)
        options = {"find_unused_parameters": True, "bucket_cap_mb": 0.001, **options}
        self.model = DistributedDataParallel(Turns(), process_group=group, **options)
        self.state.register(self.model)
        self.model.register_comm_hook(self.state, hook)
        self.rest = torch.zeros(2, SIZE, dtype=torch.float64)
        """Of each vector what all gradients have, and all means have not."""

    def step(self, step: int, used: tuple[int, ...]) -> None:
        """Use these vectors, with small whole numbers as their gradients."""
        ranks = dist.get_world_size(self.group)
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        data = torch.randint(-50, 51, (SIZE,), generator=generator).float()
        self.model.zero_grad()
        self.model(data, used).backward()
        mine = torch.zeros(2, SIZE, dtype=torch.float64)
        mine[list(used)] = data.double()
        dist.all_reduce(mine, group=self.group)
        self.rest += mine / ranks
        for index, weight in enumerate(self.model.module.weights):
            if weight.grad is not None:
                self.rest[index] -= weight.grad

    def owed(self) -> torch.Tensor:
        """The mean of what is owed, float64, as `rest`."""
        weights = self.model.module.weights
        owed = torch.stack([self.state.residuals.of(weight).double() for weight in weights])
        dist.all_reduce(owed, group=self.group)
        return owed / dist.get_world_size(self.group)


def in_turns(kind: str, as_view: bool) -> None:
    pair = subgroup((0, 1))
    if dist.get_rank() > 1:
        return
    training = Training(kind, pair, gradient_as_bucket_view=as_view)
    for step in range(10):
        before = training.owed()
        training.step(step, (step % 2,))
        assert training.owed()[1 - step % 2].equal(before[1 - step % 2])
        assert training.owed().equal(training.rest)
    assert training.owed().any(dim=1).all()


@pytest.mark.parametrize("as_view", [False, True])
@kinds
def test_nothing_is_lost_of_vectors_used_in_turns(ranks: Ranks, kind: str, as_view: bool) -> None:
    ranks.run(in_turns, kind, as_view)


def by_some(kind: str) -> None:
    """A rank that does not use a vector sends what it owes of it, if another one does use it."""
    pair = subgroup((0, 1))
    if dist.get_rank() > 1:
        return
    training = Training(kind, pair)
    training.step(0, (0, 1))
    weight = training.model.module.weights[0]
    before = training.state.residuals.of(weight).clone()
    training.step(1, (0, 1) if dist.get_rank() == 0 else (1,))
    assert not training.state.residuals.of(weight).equal(before)
    assert training.owed().equal(training.rest)


@kinds
def test_a_rank_sends_what_it_owes_where_another_has_a_gradient(ranks: Ranks, kind: str) -> None:
    ranks.run(by_some, kind)


def through_changes(kind: str) -> None:
    """200 steps, loaded into as many ranks, into one, and into two again."""
    first, alone, pair = subgroup((0, 1)), subgroup((0,)), subgroup((0, 1))
    states: list[Any] = [None] * dist.get_world_size()
    rest = torch.zeros(2, SIZE, dtype=torch.float64)
    for part, group in enumerate((first, pair, alone, pair)):
        saved = [state for state in states if state is not None]
        is_in = dist.get_rank() < (1 if group is alone else 2)
        mine = None
        if is_in:
            training = Training(kind, group)
            training.rest += rest
            if saved:
                same = len(saved) == dist.get_world_size(group)
                training.state.load_state_dict(saved[dist.get_rank()] if same else saved)
            for step in range(50 * part, 50 * part + 50):
                training.step(step, ((0,), (0,), (0, 1), (1,), (1,))[step % 5])
            assert training.owed().equal(training.rest)
            assert training.state.step == 50 * part + 50
            rest, mine = training.rest, training.state.state_dict()
        dist.all_gather_object(states, mine)
        dist.broadcast(rest, 0)


@kinds
def test_nothing_is_lost_by_saving_and_by_other_numbers_of_ranks(ranks: Ranks, kind: str) -> None:
    ranks.run(through_changes, kind)


class Halves(nn.Module):
    """A vector of half precision whose gradient is the data."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIZE, dtype=dtype))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return (self.weight * data).sum()


def rounds(kind: str, dtype: torch.dtype) -> None:
    """Means of three halves have more bits than a half."""
    group: Any = dist.group.WORLD
    state, hook = KINDS[kind](group)
    model = DistributedDataParallel(Halves(dtype))
    model.register_comm_hook(state, hook)
    rest = torch.zeros(SIZE, dtype=torch.float64)
    for step in range(20):
        torch.manual_seed(10 * step + dist.get_rank())
        data = torch.randn(SIZE).to(dtype)
        model.zero_grad()
        model(data).backward()
        total = data.double()
        dist.all_reduce(total)
        sent = model.module.weight.grad.double()
        rest += total / 3 - sent
    owed = state.residuals.of(model.module.weight).double()
    dist.all_reduce(owed)
    assert (rest - owed / 3).norm() <= 1e-5 * rest.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@kinds
def test_what_rounding_takes_from_a_mean_is_owed(
    ranks: Ranks, kind: str, dtype: torch.dtype
) -> None:
    ranks.run(rounds, kind, dtype)
