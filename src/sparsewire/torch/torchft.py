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
    """Replaces torchft's ProcessGroupGloo: `Manager(pg=ProcessGroupSparsewire(), ...)`.

    If a replica is lost, the Manager repeats the step without the replica, or with its successor.
    """

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        group: dist.ProcessGroup = group_of(store, rank, world_size, self._timeout)
        return group

    def _wrap_work(self, work: Any, opts: object) -> Any:
        return _Settled(work) if isinstance(opts, AllreduceOptions) else work

    def getBackendName(self) -> str:
        return f"torchft-{NAME}"


class _Settled(Work):
    """A sum's work for torchft 0.2, which takes errors from the future, and not from `wait`.

    The future is torch's own and settled, since torchft relies on callbacks that run at once.
    """

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the sum has succeeded or failed."""
        self.get_future()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """A future with the tensors, or with the error; blocks like `wait`."""
        if self._future is None:
            self._future = torch.futures.Future()
            try:
                self._work.wait()
                self._future.set_result(self._work.result())
            except Exception as error:
                self._future.set_exception(error)
        return self._future
