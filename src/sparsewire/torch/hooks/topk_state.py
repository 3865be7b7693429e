"""What the top-k hook keeps on one rank: settings, residuals, and the group it sends over."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch import nn

from sparsewire._core import TopK
from sparsewire.torch.hooks.engine_group import engine_group
from sparsewire.torch.hooks.residuals import Residuals, Saved, restore

_BITS = {None: 32, "int8": 8, "int4": 4, "int2": 2}


class TopKState:
    """What `topk_hook` keeps from step to step on one rank.

    Of each `bucket` consecutive elements of a parameter's gradient (1 to 65536) the `k` largest are
    sent (1 to `bucket`), as float32 where `precision` is None, else as "int8", "int4" or "int2":
    rounded to the nearest multiple of a power of two that they share. The first `warmup_steps`
    steps send everything.

    `process_group` is that of the model, None for the default one. Where it is not of sparsewire, a
    communicator beside it is made, so that all ranks must make their states together.

    Raises ValueError for settings out of range; `sparsewire.Error` where the ranks do not meet.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        k: int = 4,
        bucket: int = 512,
        precision: str | None = "int4",
        warmup_steps: int = 0,
    ) -> None:
        if precision not in _BITS:
            raise ValueError(f"precision {precision!r} is not known: use None, int8, int4 or int2")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must not be negative, not {warmup_steps}")
        self.format = TopK(bucket, k, _BITS[precision])
        self.warmup_steps = warmup_steps
        self.step = 0
        self.residuals = Residuals()
        self.group = engine_group(process_group)

    def register(self, model: nn.Module) -> None:
        """Take the parameters' names from the model, which `state_dict` and its like need."""
        self.residuals.register(model)

    def state_dict(self) -> Saved:
        """The state of this rank, for `torch.save`; every rank has one of its own.

        Raises RuntimeError before `register`.
        """
        return {
            "rank": self.group.rank(),
            "world_size": self.group.size(),
            "step": self.step,
            "residuals": self.residuals.named(),
        }

    def load_state_dict(self, saved: Saved | Sequence[Saved]) -> None:
        """Go on from what this rank saved, or from a list of what all ranks of a job saved.

        With a list, the number of ranks may differ: rank r takes over from the old ranks r, r + n,
        r + 2n, ... of n, scaled so that the mean of all that is still owed stays the same.

        Raises RuntimeError before `register`; ValueError where a single state is of another rank or
        number of ranks, a list lacks a rank, or parameters differ.
        """
        self.residuals.load(restore(saved, self.group.rank(), self.group.size()))
        self.step = (saved if isinstance(saved, dict) else saved[0])["step"]
