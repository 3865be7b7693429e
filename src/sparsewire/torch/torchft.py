"""A process group for torchft's Manager, which makes it anew whenever replicas come or go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions, Store, Work
from torchft.process_group import ProcessGroupWrapper

from sparsewire.options import BACKEND as NAME
from sparsewire.torch.backend import group_of


class ProcessGroupSparsewire(ProcessGroupWrapper):  # type: ignore[misc]
    """Takes the place of torchft's ProcessGroupGloo: `Manager(pg=ProcessGroupSparsewire(), ...)`.

    Where a replica is lost, the Manager repeats the step without it, or with its successor.
    """

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        group: dist.ProcessGroup = group_of(store, rank, world_size, self._timeout)
        return group

    def _wrap_work(self, work: Any, opts: object) -> Any:
        return _Settled(work) if isinstance(opts, AllreduceOptions) else work

    def getBackendName(self) -> str:
        return f"torchft-{NAME}"


class _Settled(Work):
    """A sum as torchft 0.2 can bear it: what fails is told by the future, and not by `wait`.

    Its future is torch's own and settled, since torchft counts on callbacks that run at once.
    """

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the sum has ended, well or not."""
        self.get_future()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """The tensors, or what went wrong; blocks as `wait` does."""
        if self._future is None:
            self._future = torch.futures.Future()
            try:
                self._work.wait()
                self._future.set_result(self._work.result())
            except Exception as error:
                self._future.set_exception(error)
        return self._future
