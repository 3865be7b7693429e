"""A group's service for tensors on devices. All ranks set it up at the first such tensor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
from torch._C._distributed_c10d import PrefixStore, Store

import sparsewire
from sparsewire.collectives.staged import refuse_capture
from sparsewire.lifetime import PROCESS_GROUP, Inherited, never_free
from sparsewire.torch.calls.forwarding import Backend, InnerBackends
from sparsewire.torch.device import host_level
from sparsewire.torch.device.device_identities import DeviceIdentities
from sparsewire.torch.device.device_path import DevicePath, Levels
from sparsewire.torch.device.host_level import HostLevel
from sparsewire.torch.device.inner_speed import measure


class DeviceService:
    """The service of one rank in a group, whose `communicator` knows SPARSEWIRE_CUDA."""

    def __init__(
        self,
        communicator: sparsewire.Communicator,
        store: Store,
        inner: InnerBackends,
        timeout: Callable[[], timedelta],
    ) -> None:
        self._communicator = communicator
        self._store = store
        self._inner = inner
        self._timeout = timeout
        self._making = threading.Lock()
        self._path: DevicePath | None = None
        self._identities = DeviceIdentities(
            store, communicator.rank, communicator.world_size, timeout
        )
        self._inherited: Inherited | None = None

    @property
    def mode(self) -> str:
        """The value of SPARSEWIRE_CUDA."""
        return self._communicator.cuda

    @property
    def path(self) -> DevicePath | None:
        """The engine's path for tensors on devices; None before the first one."""
        return self._path

    def path_for(self, device: torch.device) -> DevicePath | None:
        """The path, made for this device if there is none; None if the inner backend serves all.

        Raises Error while a graph is captured.
        """
        if self._inherited is not None:
            self._inherited.refuse()
        if self.mode == "nccl":
            return None
        refuse_capture(device)
        with self._making:
            if self._path is None:
                self._path = self._connect(device)
            return self._path

    def nccl_refuses(self, device: torch.device, peers: Sequence[int] | None = None) -> bool:
        """Whether two of this rank and its `peers` (None: of all ranks) share a device.

        False if SPARSEWIRE_CUDA is "nccl". The first call waits until these ranks have a tensor on
        a device.
        """
        if self._inherited is not None:
            self._inherited.refuse()
        return self.mode != "nccl" and self._identities.are_shared(device, peers)

    def close(self) -> None:
        """Fail collectives in flight. Idempotent."""
        if self._path is not None:
            self._path.close()

    def abort(self, message: str) -> None:
        """Fail collectives in flight, on all ranks."""
        if self._path is not None:
            self._path.abort(message)

    def disown(self) -> None:
        """In a forked child: leave all to the parent."""
        self._making = threading.Lock()
        if self._path is not None:
            never_free(self._path)
        self._path, self._inherited = None, Inherited(PROCESS_GROUP)

    def _connect(self, device: torch.device) -> DevicePath:
        communicator = self._meet("device", self._communicator.rank, self._communicator.world_size)
        if self.mode != "auto" or self.nccl_refuses(device):
            return DevicePath(communicator, device)
        inner = self._inner.nccl(device.type)
        if inner is None:
            return DevicePath(communicator, device)
        levels = self._connect_levels(communicator, device)
        return DevicePath(communicator, device, measure(inner, device), levels)

    def _connect_levels(
        self, communicator: sparsewire.Communicator, device: torch.device
    ) -> Levels | None:
        """The levels if hosts may add up first, and all have the same number of ranks, above 1."""
        layout = host_level.meet(communicator) if communicator.has_levels else None
        if layout is None:
            return None

        def connect(store: Store, rank: int, size: int) -> Backend:
            return self._inner.make_nccl(store, rank, size)

        host = HostLevel(layout, PrefixStore("hosts", self._store), connect)
        peers = self._meet(f"device-{layout.place}", layout.host, layout.hosts)
        return Levels(host, peers, measure(host.backend, device))

    def _meet(self, name: str, rank: int, size: int) -> sparsewire.Communicator:
        return sparsewire.init(
            PrefixStore(name, self._store),
            rank=rank,
            world_size=size,
            timeout=self._timeout().total_seconds(),
        )
