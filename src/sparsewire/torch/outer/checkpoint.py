"""Saved states of replicas: of any number of replicas, and whatever the fragments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sparsewire.torch.hooks.saved import residuals_of
from sparsewire.torch.outer.state import FragmentState, ReplicaState

_KEYS = {"rank", "world_size", "steps", "rounds", "shared", "numbers", "residuals", "bases"}


def saved(state: ReplicaState, steps: int, rank: int, world_size: int) -> dict[str, Any]:
    """The state of one replica by the names of its parameters; tensors are copies on the host."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    residuals: dict[str, Tensor] = {}
    bases: dict[str, Tensor] = {}
    for each in state.fragments:
        tensors.update({k: v.detach().cpu().clone() for k, v in each.shared.tensors().items()})
        numbers.update(each.shared.numbers())
        if each.residual is not None:
            owed = each.residual.whole()
            residuals.update({slot.name: slot.of(owed) for slot in each.fragment.slots})
        if each.base is not None:
            base = each.base.cpu().clone()
            bases.update({slot.name: slot.of(base) for slot in each.fragment.slots})
    return {
        "rank": rank,
        "world_size": world_size,
        "steps": steps,
        "rounds": state.rounds,
        "shared": tensors,
        "numbers": numbers,
        "residuals": residuals,
        "bases": bases,
    }


def load(
    state: ReplicaState,
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    rank: int,
    world_size: int,
) -> int:
    """Take over the state of one replica, or its share of those of all; returns the steps."""
    states: Sequence[Mapping[str, Any]] = [given] if isinstance(given, Mapping) else list(given)
    _check(states, rank, world_size)
    own = next((each for each in states if each["rank"] == rank), states[0])
    residuals = residuals_of(states, rank, world_size)  # type: ignore[arg-type]
    for each in state.fragments:
        each.shared.check(own["shared"])
    for each in state.fragments:
        each.shared.load(own["shared"], own["numbers"])
        if each.residual is not None:
            owed = torch.zeros(each.fragment.elements)
            for slot in each.fragment.slots:
                if slot.name in residuals:
                    slot.of(owed).copy_(residuals[slot.name])
            each.residual.load(owed)
        # The parameters are the model's, which has a state of its own.
        each.base = _base(each, own["bases"])
    state.rounds = int(own["rounds"])
    state.loads += 1
    return int(own["steps"])


def _base(state: FragmentState, bases: Mapping[str, Tensor]) -> Tensor | None:
    """Where training started from, if not from the shared point, by the names of parameters."""
    if not any(slot.name in bases for slot in state.fragment.slots):
        return None
    base = state.shared.vector.clone()
    for slot in state.fragment.slots:
        if slot.name in bases:
            slot.of(base).copy_(bases[slot.name])
    return base


def _check(states: Sequence[Mapping[str, Any]], rank: int, world_size: int) -> None:
    for each in states:
        if not isinstance(each, Mapping) or not each.keys() >= _KEYS:
            raise ValueError(
                "this is no state of an outer optimizer: pass what state_dict() returned, or a "
                "list of those of all replicas"
            )
    if not states:
        raise ValueError("there is no state to load: pass one replica's, or a list of all")
    if len(states) == 1 and states[0]["world_size"] > 1:
        if (states[0]["rank"], states[0]["world_size"]) != (rank, world_size):
            raise ValueError(
                f"this state is of replica {states[0]['rank']} of {states[0]['world_size']}, and "
                f"here is replica {rank} of {world_size}: load a list of the states of all instead"
            )
    elif sorted(each["rank"] for each in states) != list(range(states[0]["world_size"])):
        raise ValueError(f"a list must have the states of all {states[0]['world_size']} replicas")
    rounds = sorted({int(each["rounds"]) for each in states})
    if len(rounds) > 1:
        raise ValueError(
            f"the states are of different rounds, {rounds[0]} to {rounds[-1]}: load those that the "
            "replicas saved at the same round"
        )
