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

from sparsewire.profile.records.plan import Plan


class Sums(NamedTuple):
    """How many ranks have something in each block, and the interval that rank 0 proposes."""

    blocks: list[torch.Tensor]
    interval: int


class Message(NamedTuple):
    """A rank's part of a sample, int32: fields of these sizes, one behind the other."""

    vector: torch.Tensor
    sizes: list[int]


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

    def message(self, masks: list[torch.Tensor], interval: int, device: torch.device) -> Message:
        """This rank's message: which blocks are not zero, bool, and rank 0's proposal."""
        proposal = torch.tensor([interval if self.rank == 0 else 0], device="cpu")
        parts = [part.to(device, torch.int32) for part in (*masks, proposal)]
        return Message(torch.cat(parts), [len(part) for part in parts])

    def sums(self, message: Message | None, device: torch.device) -> Sums | None:
        """Add up what all ranks tell; None, on all, where one has failed and brings nothing.

        Collective.
        """
        size = 0 if message is None else message.vector.numel()
        told = torch.tensor([size, -size], dtype=torch.int32, device=device)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        largest, smallest = told.tolist()
        if message is None or largest != -smallest:
            return None
        dist.all_reduce(message.vector, group=self._group)
        *blocks, proposal = torch.split(message.vector, message.sizes)
        return Sums(blocks, int(proposal.item()))
