"""The group that torch before 2.14 gets: a process group of our own in place of torch's."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from sparsewire.torch.member import Member


class Group(Member, dist.ProcessGroup):  # type: ignore[misc]
    """One rank's end of a process group. All members make it together.

    Torch's own versions of collectives would call back into this class through C++, so every
    single one is overridden.
    """

    def _present(self, timeout: timedelta) -> None:
        cpu, cuda = self._inner("cpu"), self._inner("cuda")
        self._register_backend(torch.device("cpu"), self.BackendType.CUSTOM, cpu)
        self._set_default_backend(self.BackendType.CUSTOM)
        if cuda is not cpu:
            self._register_backend(torch.device("cuda"), self.BackendType.NCCL, cuda)

    def get_group_store(self) -> Store:
        return self._store
