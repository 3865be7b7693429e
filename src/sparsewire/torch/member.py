"""One rank's end of a process group: the engine serves what it can, inner backends all else.

Torch reaches it in one of two ways: before 2.14 as a process group, `Group`, later as a backend
(`backed_group`).
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

import sparsewire
from sparsewire.errors import Error
from sparsewire.lifetime import close_at_exit, closes_now, disown_in_child, never_free
from sparsewire.torch.collectives import Collectives
from sparsewire.torch.forwarding import InnerBackends, Serving
from sparsewire.torch.futures import Callbacks, current_level
from sparsewire.torch.work import Health

NAME = "sparsewire"


class Member(Collectives):
    """What both forms share. A subclass is also torch's class, which knows rank and size.

    `level` is 0 for a group that users have. What callbacks of futures issue goes to a nested group
    of the next level, because callbacks and the main thread are not in the same order everywhere.
    """

    if TYPE_CHECKING:

        def rank(self) -> int: ...

        def size(self) -> int: ...

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, level: int = 0
    ) -> None:
        """Connect to the other members; raises `sparsewire.Error` where that fails."""
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._store = store
        self._level = level
        self._nested: Member | None = None
        self._nesting = threading.Lock()
        self._callbacks = Callbacks(level + 1)
        self._health = Health()
        # The engine first: it finds out at once where ranks cannot reach each other.
        self.communicator = sparsewire.init(
            PrefixStore("sparsewire", store),
            rank=rank,
            world_size=size,
            timeout=timeout.total_seconds(),
        )
        try:
            self._inner_backends = InnerBackends(store, rank, size, timeout)
        except BaseException:
            self.communicator.close()
            raise
        close_at_exit(self.shutdown)
        disown_in_child(self)
        self._present(timeout)

    def _present(self, timeout: timedelta) -> None:
        """Have torch find what it looks for in a group, or in a backend."""
        raise NotImplementedError

    def getBackendName(self) -> str:
        return NAME

    @property
    def has_aggregators(self) -> bool:
        """Whether ranks are connected with dedicated aggregators, and not with each other."""
        return self.communicator.has_aggregators

    def _serving(self: Serving) -> Serving:
        group: Any = self
        for _ in range(current_level() - group._level):
            group = group._nested_group()
        return group  # type: ignore[no-any-return]

    def _nested_group(self) -> Member:
        with self._nesting:
            if self._nested is None:
                store = PrefixStore("callbacks", self._store)
                self._nested = type(self)(
                    store, self.rank(), self.size(), self._timeout, self._level + 1
                )
                self._nested._health = self._health
            return self._nested

    def set_timeout(self, timeout: timedelta) -> None:
        self._inner_backends.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self._inner("cpu")._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        number: int = self._inner("cpu")._get_sequence_number_for_group()
        return number

    def failure(self) -> Error | None:
        """The error that ended this group's communicator, as far as it is known here."""
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.exception()
        return self._health.error

    def shutdown(self) -> None:
        """Leave the group: end what is in flight and close all connections. Idempotent."""
        if self._nested is not None:
            self._nested.shutdown()
        self.communicator.close()
        self._callbacks.close()
        self._inner_backends.shutdown()
        closes_now(self.shutdown)

    def disown(self) -> None:
        """In a forked child: leave the group to the parent; what is called here raises."""
        self._nesting = threading.Lock()
        self._callbacks = Callbacks(self._level + 1)
        self._inner_backends.disown()
        never_free(self)

    def abort(self) -> None:
        """Fail everything in flight, here and on the other ranks, then leave the group."""
        if self._level == 0:
            self._health.run_hooks()
        if self._nested is not None:
            self._nested.abort()
        self.communicator.abort(f"rank {self.rank()} aborted its process group")
        self._inner_backends.abort()
        self.shutdown()


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
