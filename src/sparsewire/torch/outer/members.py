"""The members of now and the communicator among them, made anew in each epoch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch._C._distributed_c10d import PrefixStore

import sparsewire
from sparsewire.errors import Error, PeerLost, Timeout
from sparsewire.torch.outer.agreement import check_agreement
from sparsewire.torch.outer.membership.membership import Epoch, Excluded, Membership
from sparsewire.torch.outer.records import Arrivals, agreed, stand
from sparsewire.torch.outer.stats import Counters

_ATTEMPTS = 20
_CONNECT_S = 5.0
"""Seconds to connect after a meeting, at the first attempt; twice as many at each other."""
# Errors after which the members that are left can go on; others are told to the user.
_ENDINGS = (Error, PeerLost, Timeout)


class WorkerLost(Error):
    """Another worker of this replica is lost or stuck, so the replica cannot go on."""


def ends_epoch(error: BaseException) -> bool:
    """Whether the members can meet again after this error of the engine."""
    return type(error) in _ENDINGS


class Members:
    """The epoch, and its communicator. Only the thread of rounds uses it."""

    def __init__(
        self,
        membership: Membership,
        timeout: float,
        counters: Counters,
        agreement: int,
        inside: sparsewire.Communicator | None = None,
    ) -> None:
        self._membership = membership
        self._inside = inside
        self.timeout = timeout
        """Seconds for a collective, and at most for connecting."""
        self._counters = counters
        self._agreement = agreement
        self._epoch: Epoch | None = None
        self._communicator: sparsewire.Communicator | None = None
        self._stood = -1
        self._told = (0, 0)
        self._owed: dict[str, float] = {}
        self.standings: Any = None

    @property
    def epoch(self) -> Epoch:
        assert self._epoch is not None, "the members have met"
        return self._epoch

    @property
    def communicator(self) -> sparsewire.Communicator:
        assert self._communicator is not None, "the members have met"
        return self._communicator

    def meet(self, lost: Collection[str], committed: int, prepared: int, has_state: bool) -> None:
        """Agree on an epoch without the lost, connect, and learn where each member stands.

        Raises MismatchError if settings differ, and Error if nobody can agree, or if connecting
        fails again and again.
        """
        self._end_epoch()
        own = {"committed": committed, "prepared": prepared, "has_state": has_state}
        own["agreement"] = self._agreement
        for attempt in range(_ATTEMPTS):
            try:
                self._stand(lost, self._connect_limit(attempt), own)
                break
            except Error as error:
                self._end_epoch()
                if not ends_epoch(error) or attempt == _ATTEMPTS - 1:
                    raise
                lost = self.lost_by(error)
        check_agreement(map(int, self.standings["agreement"]), self.epoch.members)
        self._count_lost()

    def _stand(self, lost: Collection[str], limit: float, own: dict[str, int]) -> None:
        """Agree on an epoch, connect, and tell the others where this replica stands."""
        joined = -1 if self._epoch is None else self._epoch.number
        self._agree(lost)
        self._communicator = self._connect(self.epoch, limit)
        self.standings = stand(
            self.communicator, self.timeout, joined=joined, stood=self._stood, **own
        )
        self._stood = self.epoch.number

    def _connect_limit(self, attempt: int) -> float:
        """Seconds to connect: who has met is there, but the first members may start apart."""
        if self._epoch is None:
            return self.timeout
        return min(self.timeout, _CONNECT_S * (1 << attempt))

    def _agree(self, lost: Collection[str]) -> None:
        try:
            self._epoch = self._membership.reconfigure(self._epoch, lost)
        except Excluded:
            # The others took this replica for lost; it comes back as one that is new.
            self._epoch = self._membership.reconfigure(None, ())

    def _connect(self, epoch: Epoch, limit: float) -> sparsewire.Communicator:
        store = PrefixStore("mesh", epoch.store)
        return _connected(store, epoch.rank, len(epoch.members), limit)

    def connected_pair(self, epoch: Epoch, purpose: str, rank: int) -> sparsewire.Communicator:
        """A communicator of two members of an epoch, which both call this, in any thread."""
        # A store lets one thread wait at a time, and the thread of rounds must not wait for this.
        store = PrefixStore(purpose, epoch.store.clone())
        return _connected(store, rank, 2, self.timeout)

    def _count_lost(self) -> None:
        """Count the members that are gone without having left, and what they owed."""
        names = set(self.epoch.members)
        for name, owed in self._owed.items():
            if name not in names:
                self._counters.lost.append(name)
                self._counters.owed_lost += owed
        self._owed = {name: owed for name, owed in self._owed.items() if name in names}
        self._counters.members = len(names)
        self._counters.epochs += 1

    def check(self) -> None:
        """Raise the engine's error if the communicator is broken, so that the members meet."""
        if self.communicator.status()["failure"] is not None:
            self.communicator.barrier(self.timeout)

    def all_inside(self, is_so: bool) -> bool:
        """Whether it is so on all workers of this replica; a collective call among these."""
        if self._inside is None:
            return is_so
        try:
            return all(agreed(self._inside, is_so, self.timeout))
        except Error as error:
            raise WorkerLost(
                f"a worker of this replica is lost ({error}): start the whole replica again"
            ) from error

    def note(self, arrivals: Arrivals) -> None:
        """Remember what members owe, in case they are lost."""
        self._owed = arrivals.owed()

    def forget(self, names: Collection[str]) -> None:
        """These members leave in order: they owe nothing."""
        for name in names:
            self._owed.pop(name, None)

    def lost_by(self, error: Error) -> list[str]:
        """The names of the members that an error says are lost."""
        rank = getattr(error, "rank", -1)
        known = self._epoch is not None and 0 <= rank < len(self.epoch.members)
        return [self.epoch.members[rank]] if known else []

    def wishes(self) -> bool:
        """Whether a replica asks to join; only rank 0 looks."""
        return self.epoch.rank == 0 and self._membership.wishes(self.epoch)

    def count_bytes(self) -> tuple[int, int]:
        """Add the bytes that were sent and received since the last call, and give them."""
        stats = self.communicator.stats()
        now = stats["bytes_sent"], stats["bytes_received"]
        up, down = now[0] - self._told[0], now[1] - self._told[1]
        self._counters.bytes_up += up
        self._counters.bytes_down += down
        self._told = now
        return up, down

    def _end_epoch(self) -> None:
        """Leave the communicator, so that all others notice at once and meet."""
        if self._communicator is not None:
            self.count_bytes()
            self._communicator.abort("the members meet again")
            self._communicator.close()
            self._communicator, self._told = None, (0, 0)

    def close(self) -> None:
        """Leave in order. Idempotent."""
        if self._communicator is not None:
            self.count_bytes()
            self._communicator.close()
            self._communicator = None
        if self._inside is not None:
            self._inside.close()
        self._membership.close()


def _connected(store: Any, rank: int, world_size: int, limit: float) -> sparsewire.Communicator:
    return sparsewire.init(store, rank=rank, world_size=world_size, timeout=limit, aggregators=[])
