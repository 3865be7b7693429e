"""The saved states of a job's ranks: checked, and dealt out to a job of any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import torch

Vectors = dict[str, torch.Tensor]


class Saved(TypedDict, total=False):
    """The state of one rank. All states have the first three, and the vectors of their method."""

    rank: int
    world_size: int
    step: int
    job: str
    """Separates the draws that begin in this job from draws of earlier jobs of other sizes."""
    streams: dict[str, dict[str, Any]]
    """The random draws of the parameters, under the name that older saved states use."""
    residuals: Vectors
    shifts: Vectors
    mean_shifts: Vectors


def states_of(saved: Saved | Sequence[Saved], rank: int, world_size: int) -> Sequence[Saved]:
    """The states in `saved`: the state of this rank, or the states of all ranks of any job.

    Raises ValueError if it is neither, or if the ranks' states are of different steps.
    """
    if not isinstance(saved, Mapping):
        return _complete(saved)
    if (saved["rank"], saved["world_size"]) != (rank, world_size):
        raise ValueError(
            f"this state is of rank {saved['rank']} of {saved['world_size']}, and here is rank "
            f"{rank} of {world_size}: load a list of the states of all ranks instead"
        )
    return [saved]


def own_state(states: Sequence[Saved], rank: int, world_size: int) -> Saved | None:
    """The state of this rank, or None if the states are of another number of ranks."""
    if states[0]["world_size"] != world_size:
        return None
    return next(state for state in states if state["rank"] == rank)


def _complete(states: Sequence[Saved]) -> Sequence[Saved]:
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


def residuals_of(states: Sequence[Saved], rank: int, world_size: int) -> Vectors:
    """The residuals of a rank: its own, or its share of those of all ranks of another job."""
    # Ranks are averaged, so the mean residual stays the same if each of fewer ranks has less.
    factor = world_size / states[0]["world_size"]
    total: Vectors = {}
    for state in states:
        if state["rank"] % world_size == rank:
            for name, residual in state["residuals"].items():
                scaled = residual * factor
                total[name] = total[name] + scaled if name in total else scaled
    return total
