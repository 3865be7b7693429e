"""DIANA: ranks with different data reach the optimum, and the shifts are what the theory says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import assert_same_everywhere, attach
from models import Plain, train
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks

SIZE = 64
OPERATOR = "qsgd:2:64"
OMEGA = 3.0  # sqrt(64)/2 - 1


class Quadratic(nn.Module):
    """Half the sum of a (w - c)^2, where a and c differ from rank to rank."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIZE))

    def forward(self, curvature: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        return 0.5 * (curvature * (self.weight - centre) ** 2).sum()


def own_problem() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    return 0.5 + torch.rand(SIZE, generator=generator), torch.randn(SIZE, generator=generator)


def optimum() -> torch.Tensor:
    curvature, centre = own_problem()
    pulls, total = curvature * centre, curvature.clone()
    dist.all_reduce(pulls)
    dist.all_reduce(total)
    return pulls / total


def minimise(state: hooks.DianaState, steps: int) -> Any:
    model = DistributedDataParallel(Quadratic())
    attach(model, state)
    problem = own_problem()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.14)
    for _ in range(steps):
        optimizer.zero_grad()
        model(*problem).backward()
        optimizer.step()
    return model.module


def reaches_the_optimum() -> None:
    expected = optimum()
    state = hooks.DianaState(compressor=OPERATOR, min_elements=0)
    module = minimise(state, 300)
    assert state.operators.of(module.weight).omega == pytest.approx(OMEGA)
    assert (module.weight - expected).norm() < 1e-4 * expected.norm()
    assert_same_everywhere(module.weight.detach())

    # The shifts are then the gradients at the optimum, which are not zero on any rank.
    curvature, centre = own_problem()
    at_optimum = curvature * (expected - centre)
    torch.testing.assert_close(state.shifts.of(module.weight), at_optimum, rtol=0, atol=1e-3)
    mean = state.shifts.of(module.weight).clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(state.mean_shifts.of(module.weight), mean, rtol=0, atol=1e-6)

    # Without them, what is quantised is never small, and so is the noise.
    unshifted = minimise(hooks.DianaState(compressor=OPERATOR, min_elements=0, alpha=0.0), 300)
    assert (unshifted.weight - expected).norm() > 1e-2 * expected.norm()


def test_reaches_the_optimum(ranks: Ranks) -> None:
    ranks.run(reaches_the_optimum)


def moves_shifts_by_alpha() -> None:
    for alpha, expected in ((None, 1 / (OMEGA + 1)), (0.125, 0.125)):
        state = hooks.DianaState(compressor=OPERATOR, alpha=alpha, min_elements=0)
        weight = minimise(state, 1).weight
        # In the first step, all shifts are zero, and the gradient is the mean of what was sent.
        torch.testing.assert_close(
            state.mean_shifts.of(weight), expected * weight.grad, rtol=1e-6, atol=0
        )


def identity_is_dense() -> None:
    expected = train(Plain, dist.group.WORLD)
    state = hooks.DianaState(compressor="identity", min_elements=0)

    def prepare(model: Any, group: Any) -> Any:
        attach(model, state)
        return model

    actual = train(Plain, dist.group.WORLD, prepare=prepare)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def refuses() -> None:
    for biased in ("block-top-k:0.01", "sign"):
        with pytest.raises(ValueError, match="unbiased"):
            hooks.DianaState(compressor=biased)
    for alpha in (-0.1, 1.5):
        with pytest.raises(ValueError, match="alpha"):
            hooks.DianaState(alpha=alpha)


@pytest.mark.parametrize("task", [moves_shifts_by_alpha, identity_is_dense, refuses])
def test_settings(ranks: Ranks, task: Any) -> None:
    ranks.run(task)
