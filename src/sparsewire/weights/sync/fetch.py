"""Gets the bytes of a message: each stripe from its source, and the rest from the publisher where
a source fails."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from sparsewire.errors import Error, ProtocolError, Timeout
from sparsewire.options import Address, parse_address
from sparsewire.weights.sync.channel import Channel
from sparsewire.weights.sync.fan_out import Span
from sparsewire.weights.sync.server import SILENCE_S
from sparsewire.weights.sync.shelf import Held
from sparsewire.weights.sync.within import within

_DIAL_S = 5.0
_RETRY_S = 0.2
# A relay that waits itself says so each second.
_STALL_S = 5.0
# A relay that passes on less than this in so long is left, however it says that it lives.
_PATIENCE_S = 20.0
_LEAST_BYTES = 16 << 10


class _Source(NamedTuple):
    """Who is asked, and after how many seconds without a byte, or of slow ones, it is left."""

    address: Address
    stall_s: float
    patience_s: float = math.inf


class Fetch:
    """One message on its way into the memory of `held`."""

    def __init__(
        self,
        held: Held,
        publisher: Address,
        secret: bytes,
        deadline: float,
        on_failure: Callable[[str], None],
    ) -> None:
        """It ends by `deadline` on the monotonic clock. `on_failure` hears of failing relays."""
        self._held = held
        self._publisher = publisher
        self._secret = secret
        self._deadline = deadline
        self._on_failure = on_failure
        self.bytes_from_relays = 0

    async def run(self, sources: Sequence[str | None]) -> None:
        """Get all of it; raises Timeout, or an Error where the publisher has it no more."""
        spans = self._held.spans
        stripes = [
            asyncio.ensure_future(self._stripe(number, span, sources[number % len(sources)]))
            for number, span in enumerate(spans)
        ]
        try:
            await asyncio.gather(*stripes)
        finally:
            for stripe in stripes:
                stripe.cancel()
            if not self._held.is_whole:
                self._held.lose()

    async def _stripe(self, number: int, span: Span, source: str | None) -> None:
        begin = span.begin
        if source:
            begin = await self._from_relay(number, span, source)
        while begin < span.end:
            begin = await self._from_publisher(number, begin, span.end)

    async def _from_relay(self, number: int, span: Span, source: str) -> int:
        try:
            relay = _Source(parse_address(source), _STALL_S, _PATIENCE_S)
            reach = await self._get(relay, number, span.begin, span.end)
        except (OSError, ValueError, Error):
            reach = self._held.reach(span.begin)
        self.bytes_from_relays += reach - span.begin
        if reach < span.end:
            self._on_failure(source)
        return reach

    async def _from_publisher(self, number: int, begin: int, end: int) -> int:
        """Get what it sends until the connection ends; returns how far it went."""
        if time.monotonic() >= self._deadline:
            raise Timeout(
                f"message {self._held.entry.key} did not come in time from {self._publisher}: "
                "find out whether the publisher runs, or allow a longer timeout"
            )
        try:
            return await self._get(_Source(self._publisher, SILENCE_S), number, begin, end)
        except OSError:
            await asyncio.sleep(_RETRY_S)
            return self._held.reach(begin)

    async def _get(self, source: _Source, number: int, begin: int, end: int) -> int:
        """Get what a source sends of a stripe until `end`; returns how far it went."""
        remaining = max(self._deadline - time.monotonic(), 0.01)
        return await within(remaining, self._got(source, number, begin, end))

    async def _got(self, source: _Source, number: int, begin: int, end: int) -> int:
        channel = await Channel.dial(source.address, self._secret, _DIAL_S)
        with closing(channel):
            await self._ask(channel, source, begin, end)
            pace = _Pace(begin, source.patience_s)
            while begin < end:
                # Others get each part from here as it comes, not the run once it is whole.
                came = partial(self._advance, number, begin)
                target = self._held.memory[begin:end]
                begin += await channel.receive_run(target, source.stall_s, came)
                pace.check(begin)
                # A fast sender, or one of empty runs, may not keep others waiting.
                await asyncio.sleep(0)
        return begin

    async def _ask(self, channel: Channel, source: _Source, begin: int, end: int) -> None:
        """Ask for bytes of the message; raises Gone, or ProtocolError where it is another one."""
        entry = self._held.entry
        await channel.send({"op": "get", "key": entry.key, "begin": begin, "end": end})
        answer = await channel.receive(source.stall_s)
        if "error" in answer:
            raise Gone(str(answer["error"]))
        if answer.get("size") != entry.size:
            raise ProtocolError(f"message {entry.key} has another size at {source.address}")

    def _advance(self, number: int, begin: int, count: int) -> None:
        self._held.advance(number, begin + count)


class _Pace:
    """Watches how fast bytes come."""

    def __init__(self, begin: int, patience_s: float) -> None:
        self._begin = begin
        self._patience_s = patience_s
        self._since = time.monotonic()

    def check(self, reach: int) -> None:
        """Raise TimeoutError where too few came in `patience_s` seconds."""
        if time.monotonic() - self._since < self._patience_s:
            return
        if reach - self._begin < _LEAST_BYTES:
            raise TimeoutError("too few bytes come")
        self._begin, self._since = reach, time.monotonic()


class Gone(Error):
    """The other end has the message no more."""
