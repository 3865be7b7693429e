"""Defects of another implementation of DiLoCo, found by reading it, are not in this one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from outer_threads import flat, net, shared, together, train_step
from torch import Tensor, nn

from sparsewire.errors import CompressError, Error
from sparsewire.torch.outer import OuterOptimizer
from sparsewire.torch.outer.rounds import Rounds

pytestmark = pytest.mark.timeout(60)

SGD = torch.optim.SGD
PLAIN = partial(SGD, lr=1.0)
RATE = 0.25


class Slopes(nn.Module):
    """Parameters of these sizes with gradients that stay: of integers, so that SGD is exact."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros(size) for size in sizes)

    def gradient(self, rank: int) -> Tensor:
        size = flat(self).numel()
        return torch.arange(1.0, size + 1) * (1 + rank)

    def step(self, inner: torch.optim.Optimizer, rank: int) -> None:
        inner.zero_grad()
        (torch.cat([*self.parts]) * self.gradient(rank)).sum().backward()
        inner.step()


def last_tensor(rank: int, membership: Any, **settings: Any) -> Tensor:
    model = Slopes((4, 4, 2))
    inner = SGD(model.parameters(), RATE)
    with OuterOptimizer(model, inner, PLAIN, every=2, membership=membership, **settings):
        for _ in range(2):
            model.step(inner, rank)
    return flat(model)


WAYS = [
    {},
    {"compressor": "span-top-k:4:4", "sums": "gather"},
    {"compressor": "span-top-k:4:4", "sums": "owned"},
]


@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_no_tensor_is_left_out_of_the_sum(settings: dict[str, Any]) -> None:
    """Buckets of 6 elements for tensors of 4, 4 and 2 left out the last one."""
    found = together(2, partial(last_tensor, **settings))
    wanted = -2 * RATE * Slopes((4, 4, 2)).gradient(0) * 1.5
    for each in found:
        assert each.equal(wanted)


def one_of_two_fragments(rank: int, membership: Any) -> list[Tensor]:
    model = Slopes((4, 4))
    inner = SGD(model.parameters(), RATE)
    outer = SGD(model.parameters(), 0.5, momentum=0.9)
    with OuterOptimizer(
        model, inner, outer, every=4, fragments=2, membership=membership
    ) as optimizer:
        for _ in range(2):
            model.step(inner, rank)
        model.step(inner, rank)  # Leaves gradients of training, which no round may use.
        state = optimizer.state_dict()["shared"]
    return [state["parts.0/theta"], state["parts.1/theta"]]


def test_a_round_steps_its_own_fragment_alone() -> None:
    """One outer optimizer for all fragments stepped the others with gradients of training."""
    gradient = Slopes((4, 4)).gradient(0)[:4]
    for first, second in together(2, one_of_two_fragments):
        assert first.equal(-0.5 * 2 * RATE * gradient * 1.5)
        assert second.equal(torch.zeros(4))


def bytes_of_a_round(rank: int, membership: Any, compressor: str) -> int:
    """Of the second round: the first one's count has the copy of the shared state, too."""
    model = nn.Linear(512, 512, bias=False)
    inner = SGD(model.parameters(), RATE)
    generator = torch.Generator().manual_seed(rank)
    counted = []
    with OuterOptimizer(
        model, inner, PLAIN, every=1, compressor=compressor, membership=membership
    ) as optimizer:
        for _ in range(2):
            inner.zero_grad()
            model(torch.randn(4, 512, generator=generator)).square().sum().backward()
            inner.step()
            counted.append(optimizer.stats()["bytes_up"])
    return counted[1] - counted[0]


def test_quantisation_is_there_or_refused() -> None:
    """Without an optional package, it was left out silently."""
    dense = together(2, partial(bytes_of_a_round, compressor="dense"))
    coarse = together(2, partial(bytes_of_a_round, compressor="rounded:4:64"))
    assert max(coarse) < 0.3 * min(dense)
    with pytest.raises(CompressError):
        together(2, partial(bytes_of_a_round, compressor="quantised"))


def with_a_sum_that_fails(rank: int, membership: Any, fails_in: int | None) -> tuple[Tensor, bytes]:
    model = net(rank)
    inner = SGD(model.parameters(), 0.05)
    with OuterOptimizer(model, inner, every=2, membership=membership, timeout=20.0) as optimizer:
        if rank == 0 and fails_in is not None:
            fail_once(optimizer, fails_in)
        for step in range(8):
            train_step(model, inner, rank, step)
        assert optimizer.rounds == 4
        assert optimizer.stats()["epochs"] == (1 if fails_in is None else 2)
        return flat(model), shared(optimizer)


def fail_once(optimizer: OuterOptimizer, number: int) -> None:
    """Have this replica's sum of this round fail, once the others have its contribution."""
    rounds: Any = optimizer._thread._rounds
    add = Rounds._sum

    def failing(arrivals: Any, offer: Any) -> Any:
        prepared = add(rounds, arrivals, offer)
        if arrivals.round == number:
            del rounds._sum
            raise Error("the sum failed here")
        return prepared

    rounds._sum = failing


@pytest.mark.parametrize("number", [0, 2])
def test_a_sum_that_failed_is_not_committed(number: int) -> None:
    """A commit could follow a sum that failed on the way, with whatever was in memory."""
    failed = together(3, partial(with_a_sum_that_fails, fails_in=number))
    whole = together(3, partial(with_a_sum_that_fails, fails_in=None))
    for (parameters, state), (wanted, wanted_state) in zip(failed, whole, strict=True):
        assert parameters.equal(wanted)
        assert state == wanted_state


def sent_and_owed(rank: int, membership: Any) -> tuple[Tensor, Tensor]:
    model = Slopes((64,))
    inner = SGD(model.parameters(), RATE)
    with OuterOptimizer(
        model, inner, PLAIN, every=2, compressor="span-top-k:4:64", membership=membership
    ) as optimizer:
        for _ in range(40):
            model.step(inner, rank)
        saved = optimizer.state_dict()
    return saved["shared"]["parts.0/theta"], saved["residuals"]["parts.0"]


def test_what_is_not_sent_is_owed() -> None:
    """There was no error feedback: what compression left out was lost."""
    (first, owed), (second, other) = together(2, sent_and_owed)
    assert first.equal(second)
    # Even the smallest gradient, 1/64 of the largest, is sent at last.
    assert first.count_nonzero() > 32
    moved = 40 * RATE * Slopes((64,)).gradient(0) * 3
    assert (-2 * first + owed + other).equal(moved)
