"""What each parameter's gradient still owes: the memory of error feedback, kept by parameter.

DDP forms its buckets anew after the first iteration, so a bucket says nothing about what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakTensorKeyDictionary


class Saved(TypedDict):
    """The state of one rank, as it is saved."""

    rank: int
    world_size: int
    step: int
    residuals: dict[str, torch.Tensor]


class Residuals:
    """A float32 tensor for each parameter, of its number of elements, in its order in memory."""

    def __init__(self) -> None:
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._parameters: dict[str, torch.Tensor] | None = None

    def of(self, parameter: torch.Tensor) -> torch.Tensor:
        """The residual of a parameter: zeros at first, then what was left in it."""
        if parameter not in self._of:
            self._of[parameter] = torch.zeros(parameter.numel())
        residual: torch.Tensor = self._of[parameter]
        return residual

    def register(self, model: nn.Module) -> None:
        """Take the parameters' names from a model, which may be wrapped in DDP."""
        module = model.module if isinstance(model, DistributedDataParallel) else model
        self._parameters = dict(module.named_parameters())

    def named(self) -> dict[str, torch.Tensor]:
        """Copies of the residuals by the names of their parameters."""
        return {
            name: self._of[parameter].clone()
            for name, parameter in self._known().items()
            if parameter in self._of
        }

    def load(self, residuals: Mapping[str, torch.Tensor]) -> None:
        """Replace all residuals; raises ValueError where one does not fit the model."""
        known = self._known()
        for name, residual in residuals.items():
            if name not in known or known[name].numel() != residual.numel():
                raise ValueError(
                    f"the saved residual {name!r} of {residual.numel()} elements fits no parameter "
                    "of the model: load it with the model that it was saved with"
                )
        self._of.clear()
        for name, residual in residuals.items():
            self._of[known[name]] = residual.to(torch.float32, copy=True)

    def _known(self) -> dict[str, torch.Tensor]:
        if self._parameters is None:
            raise RuntimeError(
                "the names of the parameters are not known: call state.register(model) first"
            )
        return self._parameters


def restore(saved: Saved | Sequence[Saved], rank: int, world_size: int) -> dict[str, torch.Tensor]:
    """The residuals of a rank: its own, or those of all ranks of a job of any size, dealt out.

    Raises ValueError where `saved` is neither.
    """
    if isinstance(saved, Mapping):
        if (saved["rank"], saved["world_size"]) != (rank, world_size):
            raise ValueError(
                f"this state is of rank {saved['rank']} of {saved['world_size']}, and here is rank "
                f"{rank} of {world_size}: load a list of the states of all ranks instead"
            )
        return saved["residuals"]
    if sorted(state["rank"] for state in saved) != list(range(saved[0]["world_size"])):
        raise ValueError(f"a list must have the states of all {saved[0]['world_size']} ranks")
    mine = [state["residuals"] for state in saved if state["rank"] % world_size == rank]
    # Ranks are averaged, so that the same mean is owed if each of fewer ranks owes less.
    return _sum(mine, world_size / len(saved))


def _sum(each: Iterable[Mapping[str, torch.Tensor]], factor: float) -> dict[str, torch.Tensor]:
    total: dict[str, torch.Tensor] = {}
    for residuals in each:
        for name, residual in residuals.items():
            scaled = residual * factor
            total[name] = total[name] + scaled if name in total else scaled
    return total
