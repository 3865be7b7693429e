"""Outer optimizers with what trainings have: any inner optimizer, low precision with and without
masters, parameters that are tied, frozen or scalars, and gradients of several batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from outer_reference import Method, Reference
from outer_threads import FEATURES, flat, loss_of, net, shared, together, train_step
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from sparsewire.torch.outer import OuterOptimizer, muon

pytestmark = pytest.mark.timeout(60)

EVERY, STEPS = 3, 10
NESTEROV = partial(SGD, lr=0.7, momentum=0.9, nesterov=True)


class Odd(nn.Module):
    """Tied matrices, a scalar, and a frozen layer between parameters that train."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        whole = net(seed)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.frozen = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
        self.second = nn.Linear(FEATURES, FEATURES, bias=False)
        self.last = whole
        with torch.no_grad():
            for each in (self.first.weight, self.frozen.weight):
                each.copy_(torch.linspace(-0.5, 0.5 + seed, each.numel()).view_as(each))
            self.frozen.bias.fill_(0.1)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.frozen(self.first(x)).tanh()) * self.scale)


def steps_of(model: nn.Module, inner: Any, rank: int, step: int) -> None:
    """A step with one optimizer, or with each of a list in turn."""
    inners = inner if isinstance(inner, list) else [inner]
    for each in inners:
        each.zero_grad()
    loss_of(model, rank, step).backward()
    for each in inners:
        each.step()


def accumulated(model: nn.Module, inner: Any, rank: int, step: int) -> None:
    """A step of the gradients of three batches."""
    inner.zero_grad()
    for part in range(3):
        (loss_of(model, rank, 10 * step + part) / 3).backward()
    inner.step()


INNERS = {
    "adam": lambda model: Adam(model.parameters(), 0.01),
    "adamw": lambda model: AdamW(model.parameters(), 0.01, weight_decay=0.1),
    "rmsprop": lambda model: RMSprop(model.parameters(), 0.01),
    "muon": muon,
}


def trained(
    rank: int, membership: Any, model: Any, inner: Any, step: Any, **settings: Any
) -> tuple[Tensor, bytes, dict[str, Tensor], nn.Module]:
    made = model(rank)
    inners = inner(made)
    with OuterOptimizer(
        made, inners, NESTEROV, every=EVERY, membership=membership, timeout=30.0, **settings
    ) as outer:
        for number in range(STEPS):
            step(made, inners, rank, number + 1)
        return flat(made), shared(outer), outer.state_dict()["shared"], made


def check_like_reference(model: Any, inner: Any, step: Any, trains: tuple[int, ...]) -> None:
    """Two replicas are as the reference has them, to the last bit."""
    found = together(2, partial(trained, model=model, inner=inner, step=step))
    models = [model(rank) for rank in range(2)]
    method = Method(NESTEROV, EVERY, fragments=(trains,))
    reference = Reference(models, [inner(each) for each in models], method, step)
    reference.train(STEPS)
    for (parameters, bits, _, _), wanted in zip(found, models, strict=True):
        assert parameters.equal(flat(wanted))
        assert bits == found[0][1]
    assert not found[0][0].equal(flat(model(0)))


@pytest.mark.parametrize("inner", INNERS)
def test_any_inner_optimizer(inner: str) -> None:
    check_like_reference(net, INNERS[inner], steps_of, (0, 1, 2, 3, 4))


def test_gradients_of_several_batches_are_one_step() -> None:
    sgd = lambda model: SGD(model.parameters(), 0.05)  # noqa: E731
    check_like_reference(net, sgd, accumulated, (0, 1, 2, 3, 4))


def odd_of(rank: int) -> nn.Module:
    """Replicas begin with different parameters, but the same frozen ones."""
    model = Odd(0)
    with torch.no_grad():
        model.scale.add_(rank)
        model.first.weight.add_(rank / 8)
    return model


def test_tied_frozen_and_scalar_parameters() -> None:
    names = [name for name, _ in odd_of(0).named_parameters()]
    trains = tuple(at for at, name in enumerate(names) if "frozen" not in name)
    adam = lambda model: Adam([p for p in model.parameters() if p.requires_grad], 0.01)  # noqa: E731
    check_like_reference(odd_of, adam, train_step, trains)
    (_, _, state, model), _ = together(
        2, partial(trained, model=odd_of, inner=adam, step=train_step)
    )
    assert model.second.weight is model.first.weight
    assert model.frozen.weight.equal(odd_of(0).frozen.weight)
    sent = {name.partition("/")[0] for name in state}
    assert sent == {names[at] for at in trains}
    assert state["scale/theta"].shape == ()


class Coarse:
    """A parameter of 256.0 in bfloat16, whose next values are 255 and 258; steps take less."""

    def __init__(self, has_master: bool) -> None:
        self.model = nn.ParameterList([torch.full((5,), 256.0, dtype=torch.bfloat16)])
        (self.weight,) = self.model
        self.master = torch.full((5,), 256.0) if has_master else None
        self.trains = self.weight if self.master is None else self.master
        self.inner = SGD([self.trains], 1.0)

    def step(self, size: float) -> None:
        self.trains.grad = torch.full_like(self.trains, size)
        self.inner.step()
        if self.master is not None:
            with torch.no_grad():
                self.weight.copy_(self.master)


def coarse(rank: int, membership: Any, has_master: bool, sizes: list[float]) -> Any:
    """Rounds of two steps; theta_0, the parameter and its master after each."""
    each = Coarse(has_master)
    masters = None if each.master is None else [each.master]
    seen = []
    with OuterOptimizer(
        each.model, each.inner, partial(SGD, lr=1.0), every=2, masters=masters,
        membership=membership, timeout=30.0,
    ) as outer:  # fmt: skip
        for size in sizes:
            each.step(size * (rank + 1))
            each.step(size * (rank + 1))
            theta = outer.state_dict()["shared"]["0/theta"]
            master = None if each.master is None else each.master.clone()
            seen.append((theta, each.weight.detach().clone(), master))
    return seen


def test_masters_keep_what_low_precision_does_not() -> None:
    found = together(2, partial(coarse, has_master=True, sizes=[0.125, 0.125, 0.125, 2.0]))
    # The mean of the replicas' steps is 1.5 times their size, and there are two in a round.
    for each in found:
        thetas = [theta[0].item() for theta, _, _ in each]
        assert thetas == [255.625, 255.25, 254.875, 248.875]
        for theta, weight, master in each:
            assert master.equal(theta)
            assert weight.equal(theta.bfloat16())


def test_without_masters_rounding_alone_is_no_move() -> None:
    sizes = [1.0, 0.0, 0.0, 2.0]
    found = together(2, partial(coarse, has_master=False, sizes=sizes))
    for each in found:
        thetas = [theta[0].item() for theta, _, _ in each]
        # 256 - (2 + 4) / 2, then nothing, although 253 is a value of theta_0 and of the parameter.
        assert thetas[:3] == [253.0, 253.0, 253.0]
        assert all(weight.equal(theta.bfloat16()) for theta, weight, _ in each)
        assert thetas == [theta[0].item() for theta, _, _ in found[0]]


def between(rank: int, membership: Any) -> Any:
    """A theta_0 that bfloat16 does not have, and rounds in which nobody moves."""
    each = Coarse(has_master=False)
    with OuterOptimizer(
        each.model, each.inner, partial(SGD, lr=0.3), every=1, membership=membership, timeout=30.0
    ) as outer:
        thetas = []
        for size in (1.0, 0.0, 0.0):
            each.step(size)
            thetas.append(outer.state_dict()["shared"]["0/theta"])
        return thetas, each.weight.detach().clone()


def test_a_shared_point_between_two_values_stays_where_it_is() -> None:
    for thetas, weight in together(2, between):
        assert thetas[0][0].item() == pytest.approx(255.7)
        assert not thetas[0].equal(thetas[0].bfloat16().float())
        assert thetas[1].equal(thetas[0])
        assert thetas[2].equal(thetas[0])
        assert weight.equal(thetas[0].bfloat16())


def bfloat16_net(rank: int) -> nn.Module:
    return net(rank).bfloat16()


def train_low(model: nn.Module, inner: Any, rank: int, step: int) -> None:
    """As `train_step`, with batches in the model's precision."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    batch = torch.randn(8, FEATURES, generator=generator).bfloat16()
    inner.zero_grad()
    (model(batch) - batch.sum(1, keepdim=True).sin()).square().mean().backward()
    inner.step()


@pytest.mark.parametrize("compressor", ["dense", "span-top-k:16:64"])
def test_models_in_bfloat16_follow_the_shared_point(compressor: str) -> None:
    adam = lambda model: Adam(model.parameters(), 0.01)  # noqa: E731
    run = partial(trained, model=bfloat16_net, inner=adam, step=train_low, compressor=compressor)
    found = together(3, run)
    assert len({bits for _, bits, _, _ in found}) == 1
    parameters, _, state, _ = found[0]
    names = [name for name, _ in net(0).named_parameters()]
    theta = torch.cat([state[f"{name}/theta"].reshape(-1) for name in names])
    assert theta.dtype is torch.float32
    assert not theta.equal(theta.bfloat16().float())
    # One inner step of Adam since the last round.
    assert (parameters - theta).abs().max() <= 0.02
