"""Messages of a publisher or a relay: readers get their bytes while others still come in."""

from __future__ import annotations

import asyncio
import contextlib

from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.sync.fan_out import Span, stripes


class Held:
    """One message in memory, of which each stripe is there from its beginning on."""

    def __init__(self, entry: Entry, memory: memoryview, *, is_whole: bool) -> None:
        self.entry = entry
        self.memory = memory
        self._spans = stripes(entry.size)
        self._reach = [span.end if is_whole else span.begin for span in self._spans]
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_lost = False

    @property
    def spans(self) -> list[Span]:
        return self._spans

    @property
    def is_whole(self) -> bool:
        return self._reach == [span.end for span in self._spans]

    @property
    def received(self) -> int:
        """How many bytes are there."""
        pairs = zip(self._spans, self._reach, strict=True)
        return sum(reach - span.begin for span, reach in pairs)

    def reach(self, begin: int) -> int:
        """Where the bytes end that are there from `begin` on."""
        for span, reach in zip(self._spans, self._reach, strict=True):
            if span.begin <= begin < span.end:
                return max(begin, reach)
        return begin

    def advance(self, stripe: int, reach: int) -> None:
        """Tell that a stripe is there up to `reach`."""
        self._reach[stripe] = max(self._reach[stripe], reach)
        self._wake()

    def lose(self) -> None:
        """Tell that the rest will not come, or that it was damaged: readers are turned away."""
        self._is_lost = True
        self._wake()

    async def beyond(self, begin: int, limit: float) -> int:
        """Where the bytes end from `begin` on: behind it, or at it if none came in `limit` seconds.

        Raises LookupError for a message that was lost on its way.
        """
        if self.reach(begin) == begin and not self._is_lost:
            await self._movement(limit)
        if self._is_lost:
            raise LookupError(self.entry.key)
        return self.reach(begin)

    async def _movement(self, limit: float) -> None:
        loop = asyncio.get_running_loop()
        moved: asyncio.Future[None] = loop.create_future()
        self._waiting.add(moved)
        timer = loop.call_later(limit, _settle, moved)
        try:
            await moved
        finally:
            timer.cancel()
            self._waiting.discard(moved)

    def _wake(self) -> None:
        for moved in self._waiting:
            _settle(moved)


def _settle(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_result(None)


class Shelf:
    """Messages by key. Only the loop's thread touches it."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._came = asyncio.Event()

    def put(self, held: Held) -> None:
        self._held[held.entry.key] = held
        came, self._came = self._came, asyncio.Event()
        came.set()

    def get(self, key: str) -> Held | None:
        return self._held.get(key)

    async def soon(self, key: str, limit: float) -> Held | None:
        """The message of this key, if it is put here within `limit` seconds."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until(key), limit)
        return self.get(key)

    async def _until(self, key: str) -> None:
        while key not in self._held:
            await self._came.wait()

    def drop(self, keys: list[str]) -> None:
        for key in keys:
            self._held.pop(key, None)

    def keep_only(self, keys: set[str]) -> None:
        self.drop([key for key in self._held if key not in keys])
