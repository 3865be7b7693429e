"""What the states of all hooks share: the step, the way to other ranks, and parameters' names."""

from __future__ import annotations

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch.hooks.saved import Saved
from sparsewire.torch.hooks.transport import Transport


class HookState:
    """The step that training is in, of which the first `warmup_steps` send everything.

    Subclasses set `transport`. Raises ValueError for negative `warmup_steps`.
    """

    transport: Transport

    def __init__(self, warmup_steps: int) -> None:
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must not be negative, not {warmup_steps}")
        self.warmup_steps = warmup_steps
        self.step = 0
        self._parameters: dict[str, torch.Tensor] | None = None

    def register(self, model: nn.Module) -> None:
        """Take the parameters' names from the model, which `state_dict` and its like need."""
        module = model.module if isinstance(model, DistributedDataParallel) else model
        self._parameters = dict(module.named_parameters())

    def begin(self, bucket: GradBucket) -> bool:
        """Begin with a bucket; True if it is averaged in full: in warm-up, and if it is sparse."""
        is_warming_up = self.step < self.warmup_steps
        self.step += bucket.is_last()
        return is_warming_up or bucket.buffer().layout is torch.sparse_coo

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters by name; raises RuntimeError before `register`."""
        if self._parameters is None:
            raise RuntimeError(
                "the names of the parameters are not known: call state.register(model) first"
            )
        return self._parameters

    def name_of(self, parameter: torch.Tensor) -> str | None:
        """The name of a parameter, where the model is registered."""
        named = (self._parameters or {}).items()
        return next((name for name, other in named if other is parameter), None)

    def _saved(self) -> Saved:
        return {
            "rank": self.transport.rank,
            "world_size": self.transport.size,
            "step": self.step,
        }
