"""The saved states of a job's ranks: checked, and dealt out to a job of any number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, TypeVar, cast

import torch


class Saved(TypedDict):
    """What every saved state of one rank has."""

    rank: int
    world_size: int
    step: int


class SavedResiduals(Saved):
    """The state of one rank whose vectors are residuals."""

    residuals: dict[str, torch.Tensor]


S = TypeVar("S", bound=Saved)


def states_of(saved: S | Sequence[S], rank: int, world_size: int) -> Sequence[S]:
    """The states in `saved`: that of this rank alone, or those of all ranks of a job of any size.

    Raises ValueError where it is neither, and where the ranks' states are of different steps.
    """
    if not isinstance(saved, Mapping):
        return _complete(saved)
    if (saved["rank"], saved["world_size"]) != (rank, world_size):
        raise ValueError(
            f"this state is of rank {saved['rank']} of {saved['world_size']}, and here is rank "
            f"{rank} of {world_size}: load a list of the states of all ranks instead"
        )
    return [cast(S, saved)]


def own_state(states: Sequence[S], rank: int, world_size: int) -> S | None:
    """The state of this rank, or None where the states are of another number of ranks."""
    if states[0]["world_size"] != world_size:
        return None
    return next(state for state in states if state["rank"] == rank)


def _complete(states: Sequence[S]) -> Sequence[S]:
    expected = states[0]["world_size"] if states else 1
    if sorted(state["rank"] for state in states) != list(range(expected)):
        raise ValueError(f"a list must have the states of all {expected} ranks")
    steps = sorted({state["step"] for state in states})
    if len(steps) > 1:
        raise ValueError(
            f"the states are of different steps, {steps[0]} to {steps[-1]}: load those that the "
            "ranks saved at the same step"
        )
    return states


def restore(
    saved: SavedResiduals | Sequence[SavedResiduals], rank: int, world_size: int
) -> dict[str, torch.Tensor]:
    """The residuals of a rank: its own, or those of all ranks of a job of any size, dealt out.

    Raises ValueError where `saved` is neither.
    """
    states = states_of(saved, rank, world_size)
    mine = [state["residuals"] for state in states if state["rank"] % world_size == rank]
    # Ranks are averaged, so that the same mean is owed if each of fewer ranks owes less.
    return _sum(mine, world_size / states[0]["world_size"])


def _sum(each: Iterable[Mapping[str, torch.Tensor]], factor: float) -> dict[str, torch.Tensor]:
    total: dict[str, torch.Tensor] = {}
    for residuals in each:
        for name, residual in residuals.items():
            scaled = residual * factor
            total[name] = total[name] + scaled if name in total else scaled
    return total
