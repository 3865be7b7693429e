"""Gets the bytes of a message: each stripe from its source, and the rest from the publisher where
a source fails."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

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
            reach = await self._get(
                parse_address(source), number, span.begin, span.end, _STALL_S, _PATIENCE_S
            )
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
            return await self._get(self._publisher, number, begin, end, SILENCE_S)
        except OSError:
            await asyncio.sleep(_RETRY_S)
            return self._held.reach(begin)

    async def _get(
        self,
        address: Address,
        number: int,
        begin: int,
        end: int,
        stall_s: float,
        patience_s: float = math.inf,
    ) -> int:
        remaining = max(self._deadline - time.monotonic(), 0.01)
        work = self._got(address, number, begin, end, stall_s, patience_s)
        return await within(remaining, work)

    async def _got(
        self,
        address: Address,
        number: int,
        begin: int,
        end: int,
        stall_s: float,
        patience_s: float,
    ) -> int:
        channel = await Channel.dial(address, self._secret, _DIAL_S)
        with closing(channel):
            key = self._held.entry.key
            await channel.send({"op": "get", "key": key, "begin": begin, "end": end})
            answer = await channel.receive(stall_s)
            if "error" in answer:
                raise Gone(str(answer["error"]))
            if answer.get("size") != self._held.entry.size:
                raise ProtocolError(f"message {key} has another size at {address}")
            pace = _Pace(begin, patience_s)
            while begin < end:
                # Others get each part from here as it comes, not the run once it is whole.
                came = partial(self._advance, number, begin)
                begin += await channel.receive_run(self._held.memory[begin:end], stall_s, came)
                pace.check(begin)
                await asyncio.sleep(0)  # Nor may a fast sender, or one of empty runs.
        return begin

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
