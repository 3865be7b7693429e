"""What outer optimizers do if something is wrong: settings, gradients, other replicas, a bit, or
the order of calls. Nobody waits for ever, and messages say what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from outer_threads import flat, names_of, net, outcomes, shared, together, train_step
from torch import nn

from sparsewire.errors import CompressError, Error, MismatchError
from sparsewire.torch.outer import OuterOptimizer, StoreMembership

pytestmark = pytest.mark.timeout(60)

SGD = torch.optim.SGD
EVERY = 2
PLAIN = partial(SGD, lr=1.0)


def alone() -> StoreMembership:
    return StoreMembership(dist.HashStore(), "alone", 1, first=["alone"])


def made(membership: Any, model: nn.Module | None = None, **settings: Any) -> OuterOptimizer:
    """An outer optimizer with a model, of which the tests take what they need."""
    model = model or net(0)
    inner = settings.pop("inner", None) or SGD(model.parameters(), 0.05)
    settings = {"outer": PLAIN, "every": EVERY, "timeout": 20.0, **settings}
    return OuterOptimizer(model, inner, settings.pop("outer"), membership=membership, **settings)


def train(optimizer: OuterOptimizer, model: nn.Module, rank: int, steps: int) -> None:
    for _ in range(steps):
        train_step(model, optimizer.inner[-1], rank, optimizer.steps + 1)


def grouped(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return SGD([{"params": parameters[:1]}, {"params": parameters[1:]}], 0.1)


MASTERS = [torch.zeros_like(each) for each in net(0).parameters()]
BAD = {
    "every": ({"every": 0}, "at least 1"),
    "fragments": ({"fragments": 0}, "at least 1"),
    "more fragments than steps": ({"fragments": 3}, "a step of its own"),
    "more fragments than parameters": ({"every": 9, "fragments": 6}, "than there are parameters"),
    "more fragments than layers": (
        {"every": 9, "fragments": 4, "strided": True},
        "fragments are more",
    ),
    "delay": ({"delay": 3}, "at most every // fragments"),
    "mix": ({"mix": "mean", "delay": 1}, "mix.*corrected"),
    "mix out of range": ({"mix": 1.5, "delay": 1}, "mix.*0 to 1"),
    "average": ({"average": "all"}, "average.*members.*contributors"),
    "topology": ({"topology": "ring"}, "topology.*all.*pairs"),
    "decay": ({"decay": 1.5, "compressor": "top-k:4"}, "decay.*0 to 1"),
    "negative decay": ({"decay": -0.5, "compressor": "top-k:4"}, "decay.*0 to 1"),
    "deadline": ({"deadline": -1.0}, "deadline"),
    "timeout": ({"timeout": 0.0}, "timeout"),
    "patience": ({"patience": -1}, "patience"),
    "sums": ({"sums": "ring"}, "gather.*owned.*auto|auto.*gather.*owned"),
    "down": ({"sums": "gather", "down": "top-k:4", "compressor": "top-k:4"}, "down"),
    "operator": ({"compressor": "nonsense"}, "there is no operator 'nonsense'"),
    "too few masters": ({"masters": MASTERS[:2]}, "pass one each"),
    "masters of other shapes": ({"masters": MASTERS[::-1]}, "fits no parameter"),
    "masters of low precision": ({"masters": [m.bfloat16() for m in MASTERS]}, "are float32"),
    "groups": ({"outer": grouped(list(net(0).parameters()))}, "several groups"),
    "no inner optimizer": ({"inner": ()}, "inner"),
    "no parameters": ({"model": nn.Identity(), "inner": SGD(net(0).parameters())}, "parameters"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_before_anything_begins(case: str) -> None:
    settings, message = BAD[case]
    before = set(threading.enumerate())
    if "inner" in settings and not settings["inner"]:
        make: Callable[[], Any] = lambda: OuterOptimizer(net(0), [], PLAIN, membership=alone())  # noqa: E731
    else:
        make = lambda: made(alone(), **settings)  # noqa: E731
    with pytest.raises((ValueError, CompressError), match=message):
        make()
    assert set(threading.enumerate()) <= before


def test_without_a_process_group_that_is_said() -> None:
    with pytest.raises(Error, match="init_process_group"):
        made(None)


WRONG = {
    "nan": float("nan"),
    "infinite": float("inf"),
    "too large together": 2.5e38,
}


def diverged(rank: int, membership: Any, wrong: float, compressor: str) -> dict[str, Any]:
    """Three rounds, of which the second fails, since replica 1 (or all) has a wrong parameter."""
    model = net(0)
    found: dict[str, Any] = {}
    with made(membership, model, compressor=compressor) as optimizer:
        train(optimizer, model, rank, EVERY)
        before = shared(optimizer), owed(optimizer)
        train(optimizer, model, rank, EVERY - 1)
        with torch.no_grad():
            if rank == 1 or wrong == WRONG["too large together"]:
                next(iter(model.parameters()))[0, 0] = wrong
        found["error"] = outcome(lambda: optimizer.inner[-1].step())
        found["kept"] = before == (shared(optimizer), owed(optimizer))
        found["rounds"] = optimizer.rounds
        optimizer.restart()
        optimizer.inner[-1].zero_grad()
        train(optimizer, model, rank, 2 * EVERY)
        found["after"], found["aborted"] = optimizer.rounds, optimizer.stats()["aborted"]
        found["shared"] = shared(optimizer)
    return found


def owed(optimizer: OuterOptimizer) -> list[Any]:
    return [each.tolist() for each in optimizer.state_dict()["residuals"].values()]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


@pytest.mark.parametrize("compressor", ["dense", "span-top-k:16:64"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_delta_that_is_not_finite_costs_a_round_and_nothing_else(
    wrong: str, compressor: str
) -> None:
    found = together(3, partial(diverged, wrong=WRONG[wrong], compressor=compressor))
    for each in found:
        assert isinstance(each["error"], CompressError)
        assert "restart()" in str(each["error"])
        assert each["kept"]
        assert (each["rounds"], each["after"], each["aborted"]) == (1, 3, 1)
    if wrong != "too large together":
        assert all("'replica-1'" in str(each["error"]) for each in found)
    assert len({each["shared"] for each in found}) == 1


def differing(rank: int, membership: Any, **odd: Any) -> None:
    model = net(0)
    with made(membership, model, **(odd if rank == 1 else {})) as optimizer:
        train(optimizer, model, rank, 4 * EVERY)


@pytest.mark.parametrize(
    "odd",
    [
        {"outer": partial(SGD, lr=0.5)},
        {"outer": partial(SGD, lr=1.0, momentum=0.5)},
        {"compressor": "top-k:4"},
        {"fragments": 2},
        {"average": "contributors"},
        {"seed": 1},
    ],
    ids=["rate", "momentum", "compressor", "fragments", "average", "seed"],
)
def test_a_replica_with_other_settings_is_named_before_the_first_round(odd: Any) -> None:
    for each in outcomes(3, partial(differing, **odd)):
        assert isinstance(each, MismatchError)
        assert "replica 'replica-1' has other settings" in str(each)


def flipped(rank: int, membership: Any, fragments: int) -> None:
    model = net(0)
    with made(membership, model, every=2, fragments=fragments) as optimizer:
        train(optimizer, model, rank, 4)
        if rank == 2:
            theta = optimizer._state.fragments[0].shared.vector
            theta.view(torch.int32)[3] ^= 1
        train(optimizer, model, rank, 4 * fragments)


@pytest.mark.parametrize("fragments", [1, 2])
def test_a_flipped_bit_of_the_shared_state_is_noticed_by_all(fragments: int) -> None:
    for each in outcomes(4, partial(flipped, fragments=fragments)):
        assert isinstance(each, MismatchError)
        assert "replica 'replica-2' differs" in str(each)


def test_after_close_calls_say_so_and_training_goes_on_alone() -> None:
    model = net(0)
    optimizer = made(alone(), model)
    train(optimizer, model, 0, EVERY + 1)
    optimizer.close()
    optimizer.close()
    with pytest.raises(Error, match="closed: make a new one"):
        optimizer.sync()
    before = flat(model)
    train(optimizer, model, 0, 2 * EVERY)
    assert not flat(model).equal(before)
    assert optimizer.rounds == optimizer.stats()["rounds"] == 1
    assert optimizer.state_dict()["rounds"] == 1
    assert not [each for each in threading.enumerate() if each.name == "sparsewire-rounds"]


class Broke(Exception):
    """What a training loop raises."""


def breaking(rank: int, membership: Any, delay: int) -> tuple[dict[str, Any], bytes]:
    """Eight rounds, but replica 1 raises after three and a half."""
    model = net(0)
    with made(membership, model, delay=delay) as optimizer:
        for step in range(8 * EVERY):
            if rank == 1 and step == 3 * EVERY + 1:
                raise Broke
            train(optimizer, model, rank, 1)
    return optimizer.stats(), shared(optimizer)


@pytest.mark.parametrize("delay", [0, 1])
def test_others_go_on_without_a_replica_whose_loop_raised(delay: int) -> None:
    first, broke, last = outcomes(3, partial(breaking, delay=delay))
    assert isinstance(broke, Broke)
    for stats, bits in (first, last):
        assert stats["rounds"] == 8
        assert stats["lost"] == [names_of(3)[1]]
        assert stats["members"] == 2
        assert bits == first[1]


def raising(rank: int, membership: Any) -> str:
    """A loop that raises after a round and a half."""
    model = net(0)
    optimizer = made(membership, model)
    assert isinstance(outcome(partial(raise_within, optimizer, model, rank)), Broke)
    with pytest.raises(Error, match="closed"):
        optimizer.sync()
    phase: str = optimizer.stats()["phase"]
    return phase


def raise_within(optimizer: OuterOptimizer, model: nn.Module, rank: int) -> None:
    with optimizer:
        train(optimizer, model, rank, EVERY + 1)
        raise Broke


def test_a_loop_that_raises_on_all_replicas_ends_on_all() -> None:
    assert together(3, raising) == ["takes part no more"] * 3


@pytest.mark.parametrize("compressor", ["threshold:0.001", "visible"])
def test_operators_whose_loss_has_only_an_absolute_bound_are_taken(compressor: str) -> None:
    def task(rank: int, membership: Any) -> Any:
        model = net(0)
        with made(membership, model, compressor=compressor) as optimizer:
            train(optimizer, model, rank, 4 * EVERY)
            return shared(optimizer), optimizer.stats()["contributed"]

    first, second = together(2, task)
    assert first == second
    assert first[1] == 4
