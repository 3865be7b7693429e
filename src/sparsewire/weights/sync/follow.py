"""A reader's connection to its publisher: it joins, asks for versions, tells which one it has."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from sparsewire.errors import Error, Timeout
from sparsewire.options import Address
from sparsewire.weights.sync.channel import Channel, Document
from sparsewire.weights.sync.server import ALIVE_S, SILENCE_S
from sparsewire.weights.sync.within import within

_log = logging.getLogger(__name__)

_DIAL_S = 5.0
_RETRY_S = 0.2
_NOTE_S = 3.0
_SHORTEST_S = 0.05


class Follower:
    """Keeps one connection, and makes it again when it breaks. Only the loop's thread uses it."""

    def __init__(self, address: Address, secret: bytes, tell: Callable[[], Document]) -> None:
        """`tell` gives what the reader tells of itself."""
        self._address = address
        self._secret = secret
        self._tell = tell
        self._channel: Channel | None = None
        self._has_joined = False
        self._turn = asyncio.Lock()
        self._notes: set[asyncio.Future[None]] = set()
        self._staying = asyncio.ensure_future(self._stay())

    async def ask(self, request: Document, deadline: float) -> Document:
        """The answer to a request; the publisher may wait with it.

        Raises Timeout by `deadline` on the monotonic clock, an Error that the publisher tells,
        ProtocolError for what is no answer, or AuthenticationError.
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
                answer = await self._asked(request)
            except BaseException:
                self._hang_up()  # Its answer would be taken for that of the next request.
                raise
        if "error" in answer:
            raise Error(str(answer["error"]))
        return answer

    async def _asked(self, request: Document) -> Document:
        channel = self._channel or await self._joined()
        await channel.send(request)
        return await _answer(channel)

    async def _joined(self) -> Channel:
        channel = await Channel.dial(self._address, self._secret, _DIAL_S)
        try:
            await channel.send({"op": "join", **self._tell()})
            if "error" in (answer := await _answer(channel)):
                raise Error(str(answer["error"]))
        except BaseException:
            channel.close()
            raise
        self._channel, self._has_joined = channel, True
        return channel

    def note(self, **more: str) -> None:
        """Tell the publisher how far this reader is, and `more`, also while it waits there.

        Where no connection is, the next one begins with it.
        """
        task = asyncio.ensure_future(self._note(more))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _note(self, more: Mapping[str, str]) -> None:
        if channel := self._channel:
            try:
                await within(SILENCE_S, channel.send({"op": "tell", **self._tell(), **more}))
            except OSError:
                # A request that is under way there finds out by itself.
                if self._channel is channel and not self._turn.locked():
                    self._hang_up()

    async def _stay(self) -> None:
        """Show that this reader lives, and meet a publisher that comes back."""
        while True:
            await asyncio.sleep(_NOTE_S)
            if self._channel:
                await self._note({})
            elif self._has_joined and not self._turn.locked():
                with contextlib.suppress(Error, OSError):
                    async with self._turn:
                        await self._joined()

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
        if "alive" not in answer:
            return answer
