"""A reader's connection to its publisher: it joins, asks for versions, tells which one it has."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from sparsewire.errors import Error, Timeout
from sparsewire.options import Address
from sparsewire.weights.sync.channel import Channel, Document
from sparsewire.weights.sync.server import ALIVE_S, SILENCE_S
from sparsewire.weights.sync.within import within

_log = logging.getLogger(__name__)

_DIAL_S = 5.0
_RETRY_S = 0.2
_PING_S = 3.0
_SHORTEST_S = 0.05


class Follower:
    """Keeps one connection, and makes it again when it breaks. Only the loop's thread uses it."""

    def __init__(self, address: Address, secret: bytes, tell: Callable[[], Document]) -> None:
        """`tell` gives what the reader tells of itself when it joins."""
        self._address = address
        self._secret = secret
        self._tell = tell
        self._channel: Channel | None = None
        self._has_joined = False
        self._turn = asyncio.Lock()
        self._notes: set[asyncio.Future[None]] = set()
        self._pings = asyncio.ensure_future(self._ping())

    async def ask(self, request: Document, deadline: float) -> Document:
        """The answer to a request; the publisher may wait with it.

        Raises Timeout by `deadline` on the monotonic clock, an Error that the publisher tells, or
        AuthenticationError.
        """
        reason = "it has nothing newer"
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                return await within(remaining, self._in_turn(request))
            except OSError as error:
                if time.monotonic() < deadline:
                    reason = f"{error}"
                    await asyncio.sleep(min(_RETRY_S, max(remaining, _SHORTEST_S)))
        raise Timeout(f"the publisher at {self._address} did not answer in time: {reason}")

    async def _in_turn(self, request: Document) -> Document:
        async with self._turn:
            try:
                return await self._asked(request)
            except (OSError, asyncio.CancelledError):
                self._hang_up()  # Its answer would be taken for that of the next request.
                raise

    async def _asked(self, request: Document) -> Document:
        channel = self._channel or await self._joined()
        await channel.send(request)
        return await _answer(channel)

    async def _joined(self) -> Channel:
        channel = await Channel.dial(self._address, self._secret, _DIAL_S)
        try:
            await channel.send({"op": "join", **self._tell()})
            await _answer(channel)
        except BaseException:
            channel.close()
            raise
        self._channel, self._has_joined = channel, True
        return channel

    def note(self, request: Document) -> None:
        """Tell the publisher something, soon, if it is there."""
        task = asyncio.ensure_future(self._told(request))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _told(self, request: Document) -> None:
        """Tell it where a connection is; when one is made again, it tells all that matters."""
        if self._channel:
            with contextlib.suppress(Error, OSError):
                await within(SILENCE_S, self._in_turn(request))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            if self._has_joined and not self._turn.locked():
                with contextlib.suppress(Error, OSError):
                    await within(SILENCE_S, self._in_turn({"op": "ping"}))

    def _hang_up(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None

    def close(self) -> None:
        """Hang up, once the loop has ended."""
        self._hang_up()


async def _answer(channel: Channel) -> Document:
    while True:
        answer = await channel.receive(ALIVE_S + SILENCE_S)
        if "error" in answer:
            raise Error(str(answer["error"]))
        if "alive" not in answer:
            return answer
