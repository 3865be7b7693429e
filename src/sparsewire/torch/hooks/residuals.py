"""Saved residuals, the memory of error feedback, given back to a job of any number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from sparsewire.torch.hooks.saved import Saved, states_of


class SavedResiduals(Saved):
    """The state of one rank whose vectors are residuals."""

    residuals: dict[str, torch.Tensor]


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
