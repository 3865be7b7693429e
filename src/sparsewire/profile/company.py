"""The ranks that record one model together: whether all do, and sums of what they have marked.

A rank whose own profile has failed still takes part in the next sample, to tell the others; else
their sums would meet collectives of the training.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from sparsewire.profile.plan import Plan


class Sums(NamedTuple):
    """How many ranks have something in each block, and the interval that rank 0 proposes."""

    blocks: list[torch.Tensor]
    interval: int


class Company:
    """The ranks of a process group; `number` is that of the profile in this process."""

    def __init__(self, group: Any, plan: Plan, number: int) -> None:
        self._group = group
        self.rank: int = group.rank()
        self.size: int = group.size()
        name = distributed_c10d._get_process_group_name(group)
        # Ranks with other settings would sample other steps; directories may differ.
        settings = replace(plan, directory=Path())
        self._key = f"sparsewire/profile/{name}/{number}/{settings}"

    def join(self) -> None:
        """Tell the others that this rank records, too. Not collective."""
        self._count(1)

    def is_complete(self) -> bool:
        """Whether all ranks record. The same on all, once each must have joined or never will."""
        return self._count(0) == self.size

    def _count(self, more: int) -> int:
        return int(distributed_c10d._get_default_store().add(self._key, more))

    def all_well(self, well: bool, vector: torch.Tensor) -> bool:
        """Whether all ranks are well, and have vectors of one size to add up. Collective."""
        size = vector.numel()
        told = torch.tensor([not well, size, -size], dtype=torch.int32, device=vector.device)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        failed, largest, smallest = told.tolist()
        return not failed and largest == -smallest

    def vector(
        self, masks: list[torch.Tensor], interval: int, device: torch.device
    ) -> torch.Tensor:
        """What `sums` adds up: masks of blocks, bool, and behind them rank 0's proposal."""
        proposal = torch.tensor([interval if self.rank == 0 else 0])
        parts = [part.to(device, torch.int32) for part in (*masks, proposal)]
        return torch.cat(parts)

    def sums(self, vector: torch.Tensor, sizes: list[int]) -> Sums:
        """Add up vectors of masks of these sizes. Collective."""
        dist.all_reduce(vector, group=self._group)
        *blocks, proposal = torch.split(vector, [*sizes, 1])
        return Sums(blocks, int(proposal.item()))
