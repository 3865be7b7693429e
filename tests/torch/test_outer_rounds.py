"""Rounds of an outer optimizer, against loops over all replicas in one thread: parameters, shared
state, and what is owed."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from outer_reference import Method, Reference
from outer_threads import flat, net, shared, together, train_step
from torch import Tensor, nn

from sparsewire.torch.outer import OuterOptimizer

pytestmark = pytest.mark.timeout(60)

SGD = torch.optim.SGD
EVERY, STEPS, RATE = 4, 13, 0.05
COMPRESSORS = ("dense", "span-top-k:16:64", "rounded:4:64+span-top-k:16:64", "block-top-k:2:16")
NESTEROV = partial(SGD, lr=0.7, momentum=0.9, nesterov=True)
PLAIN = partial(SGD, lr=1.0)
WHOLE = ((0, 1, 2, 3, 4),)
HALVES = ((0,), (1, 2, 3, 4))
STRIDED = ((0, 1, 3, 4), (2,))


class Layout(NamedTuple):
    """How parameters are cut, and how sums travel."""

    fragments: tuple[tuple[int, ...], ...] = WHOLE
    strided: bool = False
    delay: int = 0
    mix: float | str = 0.0

    def settings(self) -> dict[str, Any]:
        return {**self._asdict(), "fragments": len(self.fragments)}


LAYOUTS = (
    Layout(),
    Layout(HALVES),
    Layout(STRIDED, strided=True),
    Layout(delay=2, mix=0.5),
    Layout(delay=EVERY),
    Layout(HALVES, delay=1, mix="corrected"),
)


class Outcome(NamedTuple):
    """What one replica has at the end."""

    parameters: Tensor
    shared: bytes
    theta: Tensor
    owed: Tensor


def trained(rank: int, membership: Any, outer: Any, **settings: Any) -> Outcome:
    """The outcome of a replica; it begins with weights of its own."""
    model = net(rank)
    inner = SGD(model.parameters(), RATE)
    with OuterOptimizer(
        model, inner, outer, every=EVERY, membership=membership, timeout=30.0, **settings
    ) as optimizer:
        for step in range(STEPS):
            train_step(model, inner, rank, step + 1)
        saved = optimizer.state_dict()
    names = [name for name, _ in model.named_parameters()]
    return Outcome(
        flat(model),
        shared(optimizer),
        torch.cat([saved["shared"][f"{name}/theta"].reshape(-1) for name in names]),
        torch.cat([saved["residuals"].get(name, torch.zeros(0)).reshape(-1) for name in names]),
    )


def expected(ranks: int, method: Method) -> list[Outcome]:
    models = [net(rank) for rank in range(ranks)]
    reference = Reference(models, [SGD(each.parameters(), RATE) for each in models], method)
    reference.train(STEPS)
    reference.land()
    theta = reference.theta()
    return [
        Outcome(flat(model), b"", theta, reference.owed_by(rank))
        for rank, model in enumerate(models)
    ]


@pytest.mark.matrix
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("ranks", range(1, 5))
def test_rounds_equal_the_formulas(ranks: int, compressor: str, layout: Layout) -> None:
    average = ("members", "contributors")[ranks % 2]
    outer, decay = (NESTEROV, 1.0) if compressor == "dense" else (PLAIN, 0.9)
    run = partial(trained, outer=outer, compressor=compressor, decay=decay, average=average)
    found = together(ranks, partial(run, **layout.settings()))
    wanted = expected(
        ranks,
        Method(outer, EVERY, compressor, decay, layout.fragments, layout.delay, layout.mix),
    )
    assert len({each.shared for each in found}) == 1
    # One addition, and a division by a power of two, have no order.
    is_exact = compressor == "dense" and ranks <= 2 and layout.delay == 0
    for each, reference in zip(found, wanted, strict=True):
        close(each.theta, reference.theta, is_exact)
        close(each.parameters, reference.parameters, is_exact)
        close(each.owed, reference.owed, is_exact)


def close(actual: Tensor, wanted: Tensor, is_exact: bool) -> None:
    if is_exact:
        assert actual.equal(wanted)
    else:
        torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_runs_have_equal_bits(compressor: str) -> None:
    run = partial(trained, outer=PLAIN, compressor=compressor, fragments=2, delay=1, mix=0.5)
    first, second = together(3, run), together(3, run)
    for one, other in zip(first, second, strict=True):
        assert one.shared == other.shared
        assert one.parameters.equal(other.parameters)
        assert one.owed.equal(other.owed)


class Quadratic(nn.Module):
    """Half the squared distance to a point of integers: all that SGD does with it is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(-20.0, 20.0))

    def forward(self, rank: int) -> Tensor:
        generator = torch.Generator().manual_seed(rank)
        wanted = torch.randint(-8, 8, (40,), generator=generator)
        return (self.weight - wanted).square().sum() / 2


def every_step(rank: int, membership: Any, compressor: str) -> Tensor:
    model = Quadratic()
    inner = SGD(model.parameters(), 0.25)
    with OuterOptimizer(
        model, inner, PLAIN, every=1, compressor=compressor, membership=membership, timeout=30.0
    ):
        for _ in range(4):
            inner.zero_grad()
            model(rank).backward()
            inner.step()
    return flat(model)


def data_parallel(ranks: int) -> Tensor:
    model = Quadratic()
    inner = SGD(model.parameters(), 0.25)
    for _ in range(4):
        inner.zero_grad()
        (sum(model(rank) for rank in range(ranks)) / ranks).backward()
        inner.step()
    return flat(model)


@pytest.mark.parametrize("compressor", ["dense", "identity"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_round_each_step_is_data_parallel_training(ranks: int, compressor: str) -> None:
    wanted = data_parallel(ranks)
    assert not wanted.equal(flat(Quadratic()))
    for each in together(ranks, partial(every_step, compressor=compressor)):
        assert each.equal(wanted)


def accounted(rank: int, membership: Any, compressor: str) -> tuple[Tensor, Tensor, Tensor]:
    """How far the shared point came; of this replica the sum of its deltas, and what it owes."""
    model = net(0)
    inner = SGD(model.parameters(), RATE)
    before: list[Tensor] = []
    # This hook is called before that of rounds.
    inner.register_step_post_hook(lambda *_: before.append(flat(model)))
    begin = flat(model)
    with OuterOptimizer(
        model, inner, PLAIN, every=1, compressor=compressor, membership=membership, timeout=30.0
    ) as optimizer:
        points = [begin]
        for step in range(STEPS):
            train_step(model, inner, rank, step + 1)
            points.append(flat(model))
        owed = torch.cat(
            [each.reshape(-1) for each in optimizer.state_dict()["residuals"].values()]
        )
    pairs = zip(points, before, strict=False)
    deltas = torch.stack([(point - moved).double() for point, moved in pairs]).sum(0)
    return begin.double() - points[-1].double(), deltas, owed.double()


@pytest.mark.parametrize("compressor", COMPRESSORS[1:])
def test_without_decay_what_is_not_sent_is_owed(compressor: str) -> None:
    found = together(3, partial(accounted, compressor=compressor))
    for way, _, owed in found:
        sent = sum(deltas - left for _, deltas, left in found) / 3
        torch.testing.assert_close(way, sent, rtol=0, atol=1e-6)
        assert owed.norm() > 1e-3


def test_decay_forgets_what_is_owed() -> None:
    run = partial(trained, outer=PLAIN, compressor="span-top-k:2:64")
    kept, decayed = (together(2, partial(run, decay=decay)) for decay in (1.0, 0.1))
    for one, other in itertools.product(kept, decayed):
        assert one.owed.norm() > other.owed.norm()
