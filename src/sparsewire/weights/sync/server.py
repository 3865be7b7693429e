"""Serves readers: runs of messages from a shelf, and what a desk answers, if there is one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

from sparsewire.errors import Error, ProtocolError
from sparsewire.lifetime import disown_in_child
from sparsewire.meeting.contact.listener import name_of
from sparsewire.meeting.contact.refusal_log import RefusalLog, kind_of, worded
from sparsewire.meeting.contact.sockets import local_end
from sparsewire.options import Address
from sparsewire.weights.sync.channel import REQUEST_MAX, Channel, Document
from sparsewire.weights.sync.shelf import Held, Shelf

_log = logging.getLogger(__name__)

# A side that says nothing for so long is gone; each speaks more often.
SILENCE_S = 15.0
ALIVE_S = 1.0
# A relay may hear of a version after those that it is to pass it on to.
_HEARSAY_S = 2.0
_RUN_BYTES = 256 << 10
_CONNECTIONS_MAX = 4096
# Of one connection; what comes beyond waits in the network.
_REQUESTS_AHEAD = 4
_STRANGERS_MAX = 128
_ACCEPT_PAUSE_S = 0.05


class Desk(Protocol):
    """Answers what readers ask of a publisher, connection by connection."""

    def enter(self, address: str) -> Any:
        """A caller comes; returns what stands for it."""

    def leave(self, caller: Any) -> None:
        """Its connection has ended."""

    def hear(self, caller: Any, told: Document) -> None:
        """A reader tells something, and wants no answer; raises ProtocolError for what is none."""

    async def answer(self, caller: Any, request: Document) -> Document:
        """The answer to a request; raises ProtocolError for what is none, or an Error to tell."""


class Server:
    """One listening socket and all of its connections. Only the loop's thread touches it."""

    def __init__(self, door: socket.socket, secret: bytes, shelf: Shelf, desk: Desk | None) -> None:
        """Take over `door`, which `sockets.bind` made, and begin to serve."""
        self._door = door
        self._secret = secret
        self._shelf = shelf
        self._desk = desk
        self._refusals = RefusalLog()
        self._strangers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.bytes_sent = 0
        self._keep(self._accept())

    @property
    def address(self) -> Address:
        return local_end(self._door)

    def close(self) -> None:
        """Listen no more; the loop ends connections."""
        self._door.close()

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._door)
            except OSError as error:
                _log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            is_full = len(self._tasks) > _CONNECTIONS_MAX or self._strangers >= _STRANGERS_MAX
            if is_full:
                connection.close()
            else:
                disown_in_child(connection, "close").setblocking(False)
                self._keep(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        name = name_of(connection)
        with contextlib.closing(connection):
            try:
                channel = await self._met(connection)
                await self._talk(channel, name)
            except Error as error:
                self._refusals.note(kind_of(error), worded(error, name))
            except OSError as error:
                _log.debug("the connection of %s ended: %s", name, error)

    async def _met(self, connection: socket.socket) -> Channel:
        self._strangers += 1
        try:
            return await Channel.accepted(connection, self._secret)
        finally:
            self._strangers -= 1

    async def _talk(self, channel: Channel, name: str) -> None:
        caller = self._desk.enter(name) if self._desk else None
        requests: asyncio.Queue[Document] = asyncio.Queue(_REQUESTS_AHEAD)
        try:
            await _first_of(
                self._listen(channel, caller, requests),
                self._serve_requests(channel, caller, requests),
            )
        finally:
            if self._desk:
                self._desk.leave(caller)

    async def _listen(
        self, channel: Channel, caller: Any, requests: asyncio.Queue[Document]
    ) -> None:
        """Take what comes, also while an answer waits for a version; ends with the connection."""
        while True:
            request = await channel.receive(SILENCE_S, REQUEST_MAX)
            await asyncio.sleep(0)  # Who asks without end may not keep the others waiting.
            if request.get("op") != "tell":
                await requests.put(request)
            elif self._desk:
                self._desk.hear(caller, request)
            if request.get("op") == "get":
                await requests.join()  # Who gets a message says nothing meanwhile, however long.

    async def _serve_requests(
        self, channel: Channel, caller: Any, requests: asyncio.Queue[Document]
    ) -> None:
        while True:
            request = await requests.get()
            if request.get("op") == "get":
                await self._send(channel, request)
            else:
                await self._answer(channel, caller, request)
            requests.task_done()

    async def _answer(self, channel: Channel, caller: Any, request: Document) -> None:
        if not self._desk:
            await channel.send({"error": "a relay only passes on messages: ask the publisher"})
            return
        try:
            answer = await _while_alive(channel, self._desk.answer(caller, request))
        except ProtocolError:
            raise
        except Error as error:
            answer = {"error": str(error)}
        await channel.send(answer)

    async def _send(self, channel: Channel, request: Document) -> None:
        """Send the bytes of a message that were asked for, as they come in."""
        held, begin, end = await self._wanted(request)
        if held is None:
            await channel.send({"error": f"message {request.get('key')!r:.40} is not here"})
            return
        await channel.send({"size": held.entry.size})
        while begin < end:
            try:
                reach = min(await held.beyond(begin, ALIVE_S), begin + _RUN_BYTES, end)
            except LookupError as error:
                raise OSError(f"message {error} was lost on its way") from None
            await channel.send_run(held.memory[begin:reach])
            await asyncio.sleep(0)  # A fast reader may not keep the others waiting.
            self.bytes_sent += reach - begin
            begin = reach

    async def _wanted(self, request: Document) -> tuple[Held | None, int, int]:
        key = str(request.get("key"))
        held = self._shelf.get(key) if self._desk else await self._shelf.soon(key, _HEARSAY_S)
        begin, end = request.get("begin"), request.get("end")
        if type(begin) is not int or type(end) is not int or not 0 <= begin <= end:
            raise ProtocolError("a reader asked for no part of a message")
        if held and end > held.entry.size:
            raise ProtocolError("a reader asked for more than a message has")
        return held, begin, end


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until the first one ends, and raise what it raises."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _while_alive(channel: Channel, work: Awaitable[Document]) -> Document:
    """The result of `work`; meanwhile the reader is told that this end lives."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=ALIVE_S)
            if not task.done():
                await channel.send({"alive": True})
        return task.result()
    finally:
        task.cancel()
