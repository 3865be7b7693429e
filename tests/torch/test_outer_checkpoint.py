"""Saved states of outer optimizers: training goes on as if it had never stopped, with as many
replicas or others, and states that do not fit are refused."""

from __future__ import annotations

import io
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from outer_threads import flat, net, together, train_step
from torch import Tensor, nn

from sparsewire.torch.outer import OuterOptimizer

pytestmark = pytest.mark.timeout(60)

SGD = torch.optim.SGD
EVERY, RATE = 4, 0.05
NESTEROV = partial(SGD, lr=0.7, momentum=0.9, nesterov=True)
SPARSE = "span-top-k:16:64"


class Saved(NamedTuple):
    """What a replica saves for later: the model's, the inner and the outer optimizer's state."""

    model: Any
    inner: Any
    outer: Any


class Ended(NamedTuple):
    """What a replica has at the end."""

    parameters: Tensor
    theta: Tensor
    owed: dict[str, Tensor]
    saved: Saved


def trained(
    rank: int,
    membership: Any,
    steps: int,
    states: list[Saved] | None = None,
    save_at: int = -1,
    **settings: Any,
) -> Ended:
    """Train for so many steps more, from the states that the replicas of before have saved.

    States are also saved, for nobody, after `save_at` steps: that waits for a sum on its way.
    """
    model = net(rank)
    inner = SGD(model.parameters(), RATE, momentum=0.5)
    settings = {"every": EVERY, "timeout": 20.0, "outer": NESTEROV, **settings}
    with OuterOptimizer(
        model, inner, settings.pop("outer"), membership=membership, **settings
    ) as outer:
        if states is not None:
            same = outer.stats()["members"] == len(states)
            outer.load_state_dict(states[rank].outer if same else [state.outer for state in states])
            own = states[rank % len(states)]
            model.load_state_dict(own.model)
            inner.load_state_dict(own.inner)
        for _ in range(steps):
            train_step(model, inner, rank, outer.steps + 1)
            if outer.steps == save_at:
                outer.state_dict()
        state = outer.state_dict()
    names = [name for name, _ in model.named_parameters()]
    theta = torch.cat([state["shared"][f"{name}/theta"].reshape(-1) for name in names])
    saved = through_file(Saved(model.state_dict(), inner.state_dict(), state))
    return Ended(flat(model), theta, state["residuals"], saved)


def through_file(saved: Saved) -> Saved:
    """As it is after torch.save and torch.load, which unpickles no code."""
    file = io.BytesIO()
    torch.save(tuple(saved), file)
    file.seek(0)
    return Saved(*torch.load(file, weights_only=True))


LAYOUTS = [
    {},
    {"compressor": SPARSE, "decay": 0.9},
    {"fragments": 2, "compressor": SPARSE},
    {"fragments": 3},
    {"delay": 2, "mix": 0.5},
    {"outer": partial(torch.optim.Adam, lr=0.1)},
]


@pytest.mark.parametrize("settings", LAYOUTS, ids=str)
@pytest.mark.parametrize("steps", [2 * EVERY, 2 * EVERY + 3, 1])
def test_training_goes_on_as_if_it_had_never_stopped(steps: int, settings: Any) -> None:
    first = together(2, partial(trained, steps=steps, **settings))
    states = [each.saved for each in first]
    resumed = together(2, partial(trained, steps=13, states=states, **settings))
    whole = together(2, partial(trained, steps=steps + 13, save_at=steps, **settings))
    for one, other in zip(resumed, whole, strict=True):
        assert one.parameters.equal(other.parameters)
        assert one.theta.equal(other.theta)
        assert {k: v.tolist() for k, v in one.owed.items()} == {
            k: v.tolist() for k, v in other.owed.items()
        }
        assert one.saved.outer["rounds"] == other.saved.outer["rounds"]
        assert one.saved.outer["steps"] == other.saved.outer["steps"]


def mean_owed(ended: list[Ended]) -> Tensor:
    """The mean of what the replicas owe, which later rounds bring to the shared point."""
    vectors = [torch.cat([each.reshape(-1) for each in one.owed.values()]) for one in ended]
    return torch.stack(vectors).mean(0)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_another_number_of_replicas_owes_as_much(replicas: int) -> None:
    settings = {"compressor": SPARSE, "outer": NESTEROV}
    before = together(3, partial(trained, steps=2 * EVERY, **settings))
    states = [each.saved for each in before]
    after = together(replicas, partial(trained, steps=0, states=states, **settings))
    for each in after:
        assert each.theta.equal(before[0].theta)
        assert each.parameters.equal(before[0].parameters)
        assert each.saved.outer["steps"] == 2 * EVERY
    assert mean_owed(before).norm() > 1e-3
    torch.testing.assert_close(mean_owed(after), mean_owed(before), rtol=1e-6, atol=1e-7)
    onward = together(replicas, partial(trained, steps=EVERY, states=states, **settings))
    assert len({each.saved.outer["rounds"] for each in onward}) == 1
    assert all(each.theta.equal(onward[0].theta) for each in onward)
    assert not onward[0].theta.equal(before[0].theta)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
def test_another_number_of_fragments_goes_on(before: int, after: int) -> None:
    settings = {"compressor": SPARSE}
    first = together(2, partial(trained, steps=2 * EVERY, fragments=before, **settings))
    states = [each.saved for each in first]
    then = together(2, partial(trained, steps=0, states=states, fragments=after, **settings))
    for one, other in zip(first, then, strict=True):
        assert one.theta.equal(other.theta)
        assert one.owed.keys() == other.owed.keys()
        assert all(one.owed[name].equal(other.owed[name]) for name in one.owed)
    onward = together(
        2, partial(trained, steps=2 * EVERY, states=states, fragments=after, **settings)
    )
    assert onward[0].theta.equal(onward[1].theta)
    assert onward[0].saved.outer["rounds"] == 2 * before + 2 * after


def refusing(
    rank: int, membership: Any, states: Any, model: Any, match: str, fragments: int
) -> None:
    """What is refused has changed nothing."""
    made = model()
    inner = SGD(made.parameters(), RATE)
    with OuterOptimizer(
        made, inner, NESTEROV, membership=membership, timeout=20.0, fragments=fragments
    ) as outer:
        before = flat(made), outer.state_dict()
        with pytest.raises(ValueError, match=match):
            outer.load_state_dict(states)
        assert flat(made).equal(before[0])
        after = outer.state_dict()
        assert after["rounds"] == before[1]["rounds"]
        assert all(after["shared"][name].equal(v) for name, v in before[1]["shared"].items())


@pytest.fixture(scope="module")
def states() -> list[Any]:
    """The outer optimizers' states of three replicas, after two rounds."""
    ended = together(3, partial(trained, steps=2 * EVERY, compressor=SPARSE))
    return [each.saved.outer for each in ended]


def refused(states: Any, match: str, model: Any = None, fragments: int = 1) -> None:
    made = model or partial(net, 0)
    run = partial(refusing, states=states, model=made, match=match, fragments=fragments)
    together(1, run)


def test_states_of_other_models_are_refused(states: list[Any]) -> None:
    refused(states, "load it with the model", lambda: nn.Linear(3, 2))
    for fragments in (1, 2):
        refused(states, "load it with the model", partial(deeper, 8), fragments)


def deeper(size: int) -> nn.Module:
    """A model of which the first layer is as in the saved one, and the last is not."""
    return nn.Sequential(*list(net(0))[:4], nn.Linear(5, size))


def test_states_of_different_rounds_are_refused(states: list[Any]) -> None:
    later = [*states[:2], {**states[2], "rounds": 3}]
    refused(later, "of different rounds, 2 to 3.*at the same round")


def test_lists_that_are_not_whole_are_refused(states: list[Any]) -> None:
    refused(states[:2], "all 3 replicas")
    refused([*states, states[0]], "all 3 replicas")
    refused([], "there is no state")


def test_one_state_of_several_replicas_is_refused(states: list[Any]) -> None:
    refused(states[1], "load a list of the states of all")


@pytest.mark.parametrize("broken", [{}, {"rank": 0}, {"rank": 0, "world_size": 1}, [{}], "state"])
def test_what_is_no_state_is_refused(broken: Any) -> None:
    refused(broken, "state")
