"""The inner backends of one group, which serve what the engine does not.

That is gloo for CPU tensors, from the start, and NCCL once a CUDA tensor comes.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.lifetime import Inherited, never_free
from sparsewire.meeting.sockets import local_address

# Torch's own stubs leave out most methods of its backends.
Backend: TypeAlias = Any


class InnerBackends:
    """What serves a group's calls that the engine does not."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        """Connect gloo. All ranks make it together."""
        self._arguments = (store, rank, size)
        self._making = threading.Lock()
        self._made: dict[str, Backend] = {"cpu": _gloo(store, rank, size, timeout)}
        self._gone: Backend = None

    @property
    def gloo(self) -> Backend:
        return self._made.get("cpu", self._gone)

    def of(self, device_type: str) -> Backend:
        """The backend for tensors of this device type; gloo on a machine without NCCL."""
        if device_type != "cuda" or not (torch.cuda.is_available() and dist.is_nccl_available()):
            return self.gloo
        with self._making:
            if "cuda" not in self._made:
                self._made["cuda"] = _nccl(*self._arguments, self.timeout)
            return self._made["cuda"]

    @property
    def timeout(self) -> timedelta:
        timeout: timedelta = self.gloo.options._timeout
        return timeout

    def set_timeout(self, timeout: timedelta) -> None:
        for backend in self._made.values():
            backend.options._timeout = timeout

    def shutdown(self) -> None:
        """Close all connections. Idempotent."""
        for backend in self._made.values():
            backend.shutdown()

    def abort(self) -> None:
        """Fail what is in flight, where the backends can."""
        for backend in self._made.values():
            backend.abort()

    def disown(self) -> None:
        """In a forked child: leave the backends to the parent; what is called here raises."""
        for backend in self._made.values():
            # It would wait for threads that are not here.
            never_free(backend)
        self._made, self._gone = {}, Inherited("process group")
        self._making = threading.Lock()


def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """Connect a gloo backend, which listens on the address that the engine listens on."""
    backend: Any = dist.ProcessGroupGloo
    options = backend._Options()
    options._timeout = timeout
    # Gloo's own choice is what the host's name means, which often is loopback.
    options._devices = [backend.create_device(hostname=local_address(os.environ))]
    return backend(PrefixStore("gloo", store), rank, size, options)


def _nccl(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """An NCCL backend, which connects at its first call."""
    options: Any = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, options)
