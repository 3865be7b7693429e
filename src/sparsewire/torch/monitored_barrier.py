"""A barrier that names the ranks that did not come, over the group's store.

Gloo has such a barrier, but its pairs connect at their first call, with the group's timeout and not
the barrier's: a rank that never comes keeps the others waiting for the group's timeout.
"""

from __future__ import annotations

import time
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.errors import Timeout

_PASSED = b"passed"

_POLL_FIRST_S = 0.001
_POLL_MAX_S = 0.05


class MonitoredBarrier:
    """The barrier of one rank. All ranks count their calls; rank 0 waits for all other ranks."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store = PrefixStore("monitored_barrier", store)
        self._rank = rank
        self._others = range(1, size)
        self._calls = 0

    def wait(self, timeout: timedelta, of_group: timedelta, all_ranks: bool) -> None:
        """Wait for all ranks: rank 0 until `timeout`, the others for rank 0, until `of_group`.

        So all ranks agree on the outcome, whichever rank is late, as over gloo. Raises Timeout in
        torch's words: on rank 0 with the first missing rank, or with all missing ranks if
        `all_ranks`; on the other ranks if rank 0 raises, or does not come.
        """
        self._calls += 1
        if self._rank == 0:
            self._gather(timeout, all_ranks)
        else:
            self._take_part(of_group)

    def _gather(self, timeout: timedelta, all_ranks: bool) -> None:
        deadline = time.monotonic() + timeout.total_seconds()
        try:
            self._check(self._missing(timeout, all_ranks), timeout, all_ranks)
        except Timeout:
            self._store.set(self._verdict(), "failed")
            raise
        # All ranks have read the previous verdict.
        self._store.delete_key(self._verdict(-1))
        self._store.set(self._verdict(), _PASSED.decode())
        self._await_readers(deadline)

    def _await_readers(self, deadline: float) -> None:
        """Wait until all have read: the store may be in this process, which may end soon."""
        for rank in self._others:
            left = timedelta(seconds=max(0.0, deadline - time.monotonic()))
            if self._has_come(self._read(rank), left):
                self._store.delete_key(self._read(rank))

    def _missing(self, timeout: timedelta, all_ranks: bool) -> list[int]:
        """Wait for ranks in turn; the first missing one, or all missing ones if `all_ranks`."""
        deadline = time.monotonic() + timeout.total_seconds()
        missing: list[int] = []
        for rank in self._others:
            left = timedelta(seconds=deadline - time.monotonic())
            if left <= timedelta(0) and not missing:
                raise Timeout(
                    f"Rank 0 timed out in monitoredBarrier after {_milliseconds(timeout)} ms, "
                    f"before it could wait for rank {rank}"
                )
            if not self._has_come(self._arrival(rank), left):
                missing.append(rank)
                if not all_ranks:
                    break
            else:
                self._store.delete_key(self._arrival(rank))
        return missing

    def _check(self, missing: list[int], timeout: timedelta, all_ranks: bool) -> None:
        if missing:
            ranks = f"Rank{'s' * all_ranks} {', '.join(map(str, missing))}"
            raise Timeout(f"{ranks} failed to pass monitoredBarrier in {_milliseconds(timeout)} ms")

    def _take_part(self, timeout: timedelta) -> None:
        self._store.set(self._arrival(self._rank), "")
        has_verdict = self._has_come(self._verdict(), timeout)
        if not has_verdict or self._store.get(self._verdict()) != _PASSED:
            raise Timeout(
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                "while waiting for send/recv from rank 0. Its log names the rank that is missing."
            )
        self._store.set(self._read(self._rank), "")

    def _has_come(self, key: str, limit: timedelta) -> bool:
        """Whether the key comes in time. Polls: `wait` of a TCPStore would block other threads."""
        deadline = time.monotonic() + limit.total_seconds()
        pause = _POLL_FIRST_S
        while not self._store.check([key]):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _POLL_MAX_S)
        return True

    def _arrival(self, rank: int) -> str:
        return f"{self._calls}/{rank}"

    def _read(self, rank: int) -> str:
        return f"{self._calls}/{rank}/read"

    def _verdict(self, later: int = 0) -> str:
        return f"{self._calls + later}/verdict"


def _milliseconds(timeout: timedelta) -> int:
    return round(timeout.total_seconds() * 1000)
