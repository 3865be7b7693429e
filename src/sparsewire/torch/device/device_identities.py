"""The device of each rank of a group, told through the store: NCCL refuses two ranks on one device.

A rank tells its device at its first call with a tensor on a device. It asks only for the ranks in a
call: a send and its receive have two ranks, and other ranks may never make such a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.device.accelerator import ACCELERATORS
from sparsewire.errors import Timeout
from sparsewire.meeting.contact.dial import name_ranks
from sparsewire.meeting.contact.sockets import host_identity


class DeviceIdentities:
    """The devices of a group's ranks, as one rank knows them."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: Callable[[], timedelta]
    ) -> None:
        self._store = PrefixStore("devices", store)
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._names: dict[int, str] = {}

    def are_shared(self, device: torch.device, peers: Sequence[int] | None = None) -> bool:
        """Whether two of this rank and its `peers` (None: of all ranks) share a device.

        Waits until these ranks have told their devices; raises Timeout that names ranks that have
        not.
        """
        self._tell(device)
        ranks = range(self._size) if peers is None else {self._rank, *peers}
        self._learn([rank for rank in ranks if rank not in self._names])
        return len({self._names[rank] for rank in ranks}) < len(ranks)

    def _tell(self, device: torch.device) -> None:
        if self._rank not in self._names:
            name = f"{host_identity()} {ACCELERATORS[device.type].identity(device)}"
            self._store.set(str(self._rank), name)
            self._names[self._rank] = name

    def _learn(self, ranks: Sequence[int]) -> None:
        if not ranks:
            return
        self._wait(ranks)
        for rank in ranks:
            self._names[rank] = self._store.get(str(rank)).decode()

    def _wait(self, ranks: Sequence[int]) -> None:
        limit = self._timeout()
        try:
            self._store.wait([str(rank) for rank in ranks], limit)
        except RuntimeError as error:
            missing = [rank for rank in ranks if not self._store.check([str(rank)])]
            raise Timeout(
                f"{name_ranks(missing)} made no call with a tensor on a device in "
                f"{limit.total_seconds():g} s, and whether NCCL or gloo serves this one depends on "
                f"which device that is: look there for an earlier error ({error})"
            ) from error
