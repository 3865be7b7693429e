"""A process group for torchft's Manager, which makes it anew whenever replicas come or go."""

from __future__ import annotations

import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torchft.process_group import ProcessGroupWrapper

from sparsewire.autoload import NAME
from sparsewire.torch.backend import group_of


class ProcessGroupSparsewire(ProcessGroupWrapper):  # type: ignore[misc]
    """Takes the place of torchft's ProcessGroupGloo: `Manager(pg=ProcessGroupSparsewire(), ...)`.

    What a lost replica leaves undone raises our errors, which the Manager takes for a step to repeat.
    """

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        return group_of(store, rank, world_size, self._timeout)

    def getBackendName(self) -> str:
        return f"torchft-{NAME}"
